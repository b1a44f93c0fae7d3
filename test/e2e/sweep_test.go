package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

// swept is for how long a difference is waited for: it must last a minute.
const swept = 3 * time.Minute

// TestLocal_Sweep lets what the embedded driver has and what the cluster knows
// part: volumes that nobody knows, one that is gone, one without its content, one
// that was let go. All are found. Then a person adopts one with its data, imports
// one, has one deleted, and says of the one that is gone that it may be.
func TestLocal_Sweep(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	l := &disks{t: t, b: b}
	for _, id := range []string{"pg", "gone", "hurt", "let-go"} {
		file := strings.ReplaceAll(strings.ReplaceAll(volumeFile, `"mock"`, `"local"`), `capacity_min = "1GiB"`, "")
		b.Apply(strings.ReplaceAll(file, `"pg"`, fmt.Sprintf("%q", id)))
	}
	l.write("pg", "data of pg")
	letGo := l.external("let-go")
	b.Run("volume", "deregister", "let-go")
	pg, gone, hurt := l.external("pg"), l.external("gone"), l.external("hurt")
	b.Kill()
	content, kept := filepath.Join(l.dir("volumes"), key(hurt), "data"), filepath.Join(b.DataDir, "kept")
	err := errors.Join(l.twin(key(pg), '1'), l.twin(key(pg), '2'), l.forget(key(gone)), os.Rename(content, kept))
	if err != nil {
		t.Fatal(err)
	}
	b.Resume()

	b.Run("volume", "leaks", "--now")
	var leaks []api.Finding
	found := map[api.FindingKind]api.Finding{}
	b.Eventually("all that differs is found", swept, func() error {
		leaks = nil
		for _, f := range l.findings() {
			if found[f.Kind] = f; f.Kind == api.FindingLeak {
				leaks = append(leaks, f)
			}
		}
		if len(leaks) != 2 || len(found) != 4 {
			return fmt.Errorf("%d leaks, and of all kinds %v", len(leaks), found)
		}
		return nil
	})
	for kind, want := range map[api.FindingKind]struct{ volume, external string }{
		api.FindingVanished: {"gone", gone}, api.FindingAbnormal: {"hurt", hurt}, api.FindingRetained: {"let-go", letGo},
	} {
		if f := found[kind]; string(f.VolumeID) != want.volume || f.ExternalID != want.external {
			t.Errorf("%s is %s, %s: %s; want %s, %s", kind, f.VolumeID, f.ExternalID, f.Message, want.volume, want.external)
		}
	}
	if out := b.Run("volume", "explain", "hurt"); !strings.Contains(out, found[api.FindingAbnormal].Message) {
		t.Errorf("what is wrong with the volume is not explained:\n%s", out)
	}
	if n := len(l.keys()); n != 5 {
		t.Errorf("the driver has %d volumes, and finding deletes none of five", n)
	}

	b.Run("volume", "adopt", string(leaks[0].ID), "adopted")
	b.Apply(strings.ReplaceAll(jobFile, `"pg"`, `"adopted"`))
	target := l.target("adopted")
	b.Eventually("the job has written beside what was there", limit, func() error {
		got, err := os.ReadFile(filepath.Join(target, "file"))
		if err != nil || !strings.HasPrefix(string(got), "data of pg") || !strings.Contains(string(got), "started") {
			return fmt.Errorf("file has %q, %w", got, err)
		}
		return nil
	})
	b.Run("job", "stop", "db")
	b.Run("volume", "import", "kept", "--plugin", "local", "--external-id", letGo)
	b.Run("volume", "leaks", "--delete", string(leaks[1].ID))
	b.Run("volume", "delete", "gone")
	if err := os.Rename(kept, content); err != nil {
		t.Fatal(err)
	}
	b.Eventually("nothing differs any more", swept, func() error {
		if _, errOut, status := b.Try("volume", "leaks", "--now"); status != 0 {
			return errors.New(errOut)
		}
		if left := l.findings(); len(left) > 0 {
			return fmt.Errorf("still found: %+v", left)
		}
		return nil
	})
	if n := len(l.keys()); n != 4 {
		t.Errorf("the driver has %d volumes; want pg, hurt, adopted and kept", n)
	}
	for _, id := range []string{"pg", "hurt"} {
		b.Run("volume", "delete", id)
	}
	// Of those that were registered, the data stays unless a person says so.
	for _, id := range []string{"adopted", "kept"} {
		b.Run("volume", "delete", id, "--reclaim", "delete")
	}
	if left := l.keys(); len(left) > 0 {
		t.Errorf("the driver still has %v", left)
	}
}

// disks is the disk of the embedded driver, as somebody who knows it changes it.
type disks struct {
	t *testing.T
	b *host.Berth
}

func (l *disks) findings() []api.Finding {
	l.t.Helper()
	var all []api.Finding
	l.b.JSON(&all, "volume", "leaks")
	return all
}

func (l *disks) external(id string) string {
	l.t.Helper()
	var info api.VolumeInfo
	l.b.JSON(&info, "volume", "status", id)
	return info.Status.ExternalID
}

// target is where a task finds the volume.
func (l *disks) target(id string) (path string) {
	l.t.Helper()
	l.b.Eventually("volume "+id+" is mounted", limit, func() error {
		var info api.VolumeInfo
		l.b.JSON(&info, "volume", "status", id)
		if len(info.Attachments) != 1 || info.Attachments[0].Status.State != api.NodePublished {
			return fmt.Errorf("attachments %v", info.Attachments)
		}
		path = info.Attachments[0].Status.TargetPath
		return nil
	})
	return path
}

func (l *disks) dir(sub string) string { return filepath.Join(l.b.DataDir, "local", sub) }

// key is the driver's name for a volume by its id.
func key(external string) string {
	k, _, _ := strings.Cut(external, "@")
	return k
}

// keys are the volumes that the driver has on the disk.
func (l *disks) keys() (keys []string) {
	l.t.Helper()
	all, err := filepath.Glob(filepath.Join(l.dir("records"), "*.json"))
	if err != nil {
		l.t.Fatal(err)
	}
	for _, file := range all {
		keys = append(keys, strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	return keys
}

// write has a task put a line into a volume's file.
func (l *disks) write(id, line string) {
	l.t.Helper()
	l.b.Apply(strings.ReplaceAll(jobFile, `"pg"`, fmt.Sprintf("%q", id)))
	target := l.target(id)
	l.b.Eventually("the job has written", limit, func() error {
		_, err := os.Stat(filepath.Join(target, "file"))
		return err
	})
	if err := os.WriteFile(filepath.Join(target, "file"), []byte(line+"\n"), 0o600); err != nil {
		l.t.Fatal(err)
	}
	l.b.Run("job", "stop", "db")
}

// twin gives the driver a copy of a volume, under a name that ends differently
// and that this cluster might have given.
func (l *disks) twin(key string, last byte) error {
	text, err := os.ReadFile(filepath.Join(l.dir("records"), key+".json"))
	if err != nil {
		return err
	}
	var rec map[string]any
	if err := json.Unmarshal(text, &rec); err != nil {
		return err
	}
	name, ok := rec["name"].(string)
	if !ok || name == "" {
		return errors.New("the record has no name")
	}
	if name[len(name)-1] == last {
		last += 4
	}
	name = name[:len(name)-1] + string(last)
	sum := sha256.Sum256([]byte(name))
	other := hex.EncodeToString(sum[:])[:len(key)]
	rec["name"], rec["id"] = name, strings.Replace(fmt.Sprint(rec["id"]), key, other, 1)
	if text, err = json.Marshal(rec); err != nil {
		return err
	}
	return errors.Join(os.CopyFS(filepath.Join(l.dir("volumes"), other), os.DirFS(filepath.Join(l.dir("volumes"), key))),
		os.WriteFile(filepath.Join(l.dir("records"), other+".json"), text, 0o600))
}

// forget takes a volume from the driver.
func (l *disks) forget(key string) error {
	return errors.Join(os.Remove(filepath.Join(l.dir("records"), key+".json")), os.RemoveAll(filepath.Join(l.dir("volumes"), key)))
}
