package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/test/host"
)

// told is what drivers are told with some calls.
type told struct {
	Readonly bool              `json:"readonly"`
	Secrets  map[string]string `json:"secrets"`
}

// toldBy renders the calls as "Method CODE" and what was told.
func toldBy(t *testing.T, calls []host.Call, render func(told) string) string {
	t.Helper()
	var out strings.Builder
	for _, c := range calls {
		var with told
		if err := json.Unmarshal(c.Request, &with); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s %s%s\n", c.Method, c.Code, render(with))
	}
	return out.String()
}

// TestMock_ReadOnly has a job read a volume that another one wrote: the driver is
// told so when it attaches, where it does, and when it publishes, and not even
// root can write. The next writer is told the reverse.
func TestMock_ReadOnly(t *testing.T) {
	t.Parallel()
	reader := strings.NewReplacer(
		`source          = "pg"`, "source = \"pg\"\n read_only = true",
		`echo started >> /data/file;`, `cat /data/file; (echo no >> /data/file) 2>/dev/null && echo written || echo refused;`,
	).Replace(jobFile)
	for name, tc := range map[string]struct {
		flags          []string
		attach, detach string
	}{
		"Attach":   {nil, "ControllerPublishVolume OK%[1]s\n", "ControllerUnpublishVolume OK\n"},
		"NoAttach": {[]string{"-disable-attach"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, m := withMock(t, "", append(tc.flags, "-real-mounts")...)
			b.Apply(volumeFile)
			b.Apply(jobFile)
			wrote(t, b, mounted(t, b))
			b.Run("job", "stop", "db")

			b.Apply(reader)
			says(t, b, "started\nrefused\n")
			var fs syscall.Statfs_t
			if err := syscall.Statfs(mounted(t, b), &fs); err != nil || fs.Flags&syscall.MS_RDONLY == 0 {
				t.Errorf("the driver's mount is not read-only: flags %x, %v", fs.Flags, err)
			}
			b.Run("job", "stop", "db")

			b.Apply(jobFile)
			wrote(t, b, mounted(t, b))
			b.Run("job", "stop", "db")
			b.Run("volume", "delete", "pg")
			use := func(told string) string {
				up := strings.ReplaceAll(tc.attach, "%[1]s", told)
				return up + "NodeStageVolume OK\nNodePublishVolume OK" + told + "\nNodeUnpublishVolume OK\nNodeUnstageVolume OK\n" + tc.detach
			}
			want := "CreateVolume OK\n" + use("") + use(" read-only") + use("") + "DeleteVolume OK\n"
			got := toldBy(t, m.Calls(), func(with told) string {
				if with.Readonly {
					return " read-only"
				}
				return ""
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMock_Secrets has a driver that lets nobody in without the right secrets.
// Who gives it wrong ones, or none, reads what it said, and mends it by applying
// the file again, before the volume is there and after; then they reach each call
// that takes some. They are shown nowhere.
func TestMock_Secrets(t *testing.T) {
	t.Parallel()
	const right, wrong = "correct-horse", "battery-staple"
	b, m := withMock(t, "", "-real-mounts", "-node-expansion-required", "-secret", "user=admin", "-secret", "key="+right)
	with := func(key string) string {
		return volumeFile + fmt.Sprintf("secrets {\n user = \"admin\"\n key = %q\n}\n", key)
	}
	shows := func(want string, command ...string) {
		t.Helper()
		b.Eventually(strings.Join(command, " ")+" says what the driver said", limit, func() error {
			out := b.Run(command...)
			if strings.Contains(out, right) || strings.Contains(out, wrong) {
				t.Errorf("secrets are shown: %s", out)
			}
			if !strings.Contains(out, want) || !strings.Contains(out, "UNAUTHENTICATED") {
				return fmt.Errorf("no %s in %s", want, out)
			}
			return nil
		})
	}
	b.Apply(volumeFile, "--detach")
	shows(`secret "key" is missing`, "volume", "explain", "pg")
	b.Apply(with(wrong), "--detach")
	shows(`secret "key" is wrong`, "volume", "explain", "pg")
	b.Apply(with(right))

	b.Apply(with(wrong))
	b.Apply(jobFile, "--detach")
	shows(`secret "key" is wrong`, "volume", "explain", "pg")
	b.Apply(with(right))
	b.Apply(jobFile)
	wrote(t, b, mounted(t, b))
	b.Run("volume", "expand", "pg", "--capacity-min", "2GiB")
	b.Run("snapshot", "create", "pg", "before")
	b.Run("snapshot", "delete", "before")
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")

	// A refusal may be repeated before it is read, and the driver's socket may be
	// asked for the same thing once more: each call counts once.
	seen, last := map[string]bool{}, ""
	got := toldBy(t, m.Calls(), func(with told) string {
		switch {
		case with.Secrets == nil:
			return ""
		case cmp.Equal(with.Secrets, map[string]string{"user": "admin", "key": right}):
			return " right"
		case cmp.Equal(with.Secrets, map[string]string{"user": "admin", "key": wrong}):
			return " wrong"
		}
		return fmt.Sprintf(" %v", with.Secrets)
	})
	var once strings.Builder
	for line := range strings.Lines(got) {
		if line != last && !seen[line] {
			once.WriteString(line)
		}
		seen[line], last = true, line
	}
	want := `CreateVolume UNAUTHENTICATED
CreateVolume UNAUTHENTICATED wrong
CreateVolume OK right
ControllerPublishVolume UNAUTHENTICATED wrong
ControllerPublishVolume OK right
NodeStageVolume OK right
NodePublishVolume OK right
ControllerExpandVolume OK right
NodeExpandVolume OK right
CreateSnapshot OK right
DeleteSnapshot OK right
NodeUnpublishVolume OK
NodeUnstageVolume OK
ControllerUnpublishVolume OK right
DeleteVolume OK right
`
	if diff := cmp.Diff(want, once.String()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
