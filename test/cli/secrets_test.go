package cli_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/consensus"
	"github.com/berth-dev/berth/test/cluster"
)

// The secrets of a volume, before and after they were changed.
const (
	firstSecret  = "correct-horse-battery-staple"
	secondSecret = "Tr0ub4dor-and-3-more"
)

// lockedBuffer is a log that may be written to from anywhere.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestSecretsAreWithTheDriverAndNowhereElse: a volume with secrets lives its
// life, through refusals that repeat them and restarts. Afterwards they are in
// no file of a server or a node, in no log, in no answer and in no saved state.
func TestSecretsAreWithTheDriverAndNowhereElse(t *testing.T) {
	t.Parallel()
	dir, logs := t.TempDir(), &lockedBuffer{}
	log := slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := cluster.Start(t, cluster.Config{
		Agents: 1, Provider: csitest.Options{Attach: true, Stage: true}, Log: log, Disk: true,
		Stores: func() (consensus.Stores, error) { return consensus.OpenStores(filepath.Join(dir, "server"), log) },
	})
	c.Backend.Script(csitest.Rule{Method: "CreateVolume", Times: 1, Do: csitest.Fail("UNAVAILABLE", "cannot log in with "+firstSecret)})
	c.Backend.Script(csitest.Rule{Method: "NodeStageVolume", Times: 1, Do: csitest.Fail("INTERNAL", "mount -o password="+firstSecret+" failed")})
	s := &secretsTest{T: t, c: c}

	s.apply(map[string]string{"password": firstSecret, "user": "root"})
	s.until("the volume is ready", func() bool { return s.volume().Status.State == api.VolumeReady })
	s.job(true)
	s.until("the job runs", func() bool { return s.published() })
	if diff := cmp.Diff([]string{"password", "user"}, s.volume().Secrets); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}

	// The same again writes nothing, no secrets leave them, others change
	// nothing but themselves.
	before := s.volume()
	s.apply(map[string]string{"password": firstSecret, "user": "root"})
	s.apply(nil)
	s.apply(map[string]string{"password": secondSecret, "user": "root"})
	if after := s.volume(); after.Version != before.Version {
		t.Errorf("the volume went from version %d to %d", before.Version, after.Version)
	}
	c.Nodes[0].Kill()
	c.Nodes[0].Start()
	c.StopServer()
	c.StartServer()
	s.until("the job runs after restarts", func() bool { return s.published() })
	seen := s.answers()
	s.job(false)
	s.until("the volume is free", func() bool { return len(s.volume().Publications) == 0 })
	seen += s.answers()
	if err := c.Client.DeleteVolume(t.Context(), api.DefaultNamespace, "grepped", 0); err != nil {
		t.Fatal(err)
	}
	s.until("the volume is gone", func() bool {
		_, _, err := c.Client.Volume(t.Context(), api.DefaultNamespace, "grepped", client.Query{})
		return api.CodeOf(err) == api.CodeNotFound
	})
	seen += s.answers()

	s.wantCalls()
	s.wantNowhere("the log", logs.String())
	s.wantNowhere("the answers of the API", seen)
	for _, d := range []string{filepath.Join(dir, "server"), c.Nodes[0].Dir()} {
		s.wantNowhere(d, files(t, d))
	}
	// The search would find what is there.
	for name, text := range map[string]string{"the log": logs.String(), "answers": seen, "server": files(t, filepath.Join(dir, "server"))} {
		if !strings.Contains(text, "grepped") {
			t.Errorf("%s: the volume itself is not found", name)
		}
	}
}

// TestVariablesAreInNoFile of a server, in any form that can be read: neither
// while they are there, nor after they were changed, deleted, and found again
// after a restart.
func TestVariablesAreInNoFile(t *testing.T) {
	t.Parallel()
	dir, logs := t.TempDir(), &lockedBuffer{}
	log := slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := cluster.Start(t, cluster.Config{
		Log: log, Stores: func() (consensus.Stores, error) { return consensus.OpenStores(filepath.Join(dir, "server"), log) },
	})
	s := &secretsTest{T: t, c: c}
	var seen strings.Builder
	put := func(path api.VariablePath, value string) {
		t.Helper()
		row, err := c.Client.PutVariable(t.Context(), api.DefaultNamespace, path, api.VariableSpec{Items: map[string]string{"password": value}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(row)
		seen.Write(b)
	}
	put("grepped", firstSecret)
	put("grepped", secondSecret)
	put("deleted", firstSecret)
	if err := c.Client.DeleteVariable(t.Context(), api.DefaultNamespace, "deleted", 0); err != nil {
		t.Fatal(err)
	}
	c.StopServer()
	c.StartServer()
	s.until("it is read after a restart", func() bool {
		v, _, err := c.Client.Variable(t.Context(), api.DefaultNamespace, "grepped", client.Query{})
		return err == nil && v.Items["password"] == secondSecret
	})
	var saved bytes.Buffer
	if err := c.Client.SaveState(t.Context(), &saved); err != nil {
		t.Fatal(err)
	}
	all, _, err := c.Client.Variables(t.Context(), client.Query{})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(all)
	seen.Write(b)
	s.wantNowhere("the log", logs.String())
	s.wantNowhere("answers to writers and lists", seen.String())
	s.wantNowhere("the server's files", files(t, filepath.Join(dir, "server")))
	if text := files(t, filepath.Join(dir, "server")); !strings.Contains(text, "grepped") || !strings.Contains(seen.String(), "grepped") {
		t.Error("the variable itself is not found")
	}
	// A saved state brings them back, where the key is.
	put("grepped", firstSecret)
	if _, err := c.Client.RestoreState(t.Context(), &saved); err != nil {
		t.Fatal(err)
	}
	s.until("it is what it was", func() bool {
		v, _, err := c.Client.Variable(t.Context(), api.DefaultNamespace, "grepped", client.Query{})
		return err == nil && v.Items["password"] == secondSecret
	})
}

type secretsTest struct {
	*testing.T
	c *cluster.Cluster
}

// apply applies the volume with these secrets.
func (s *secretsTest) apply(secrets map[string]string) {
	s.Helper()
	spec := api.VolumeSpec{
		PluginID: cluster.PluginID, Secrets: secrets,
		Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}},
	}
	if _, err := s.c.Client.ApplyVolume(s.Context(), api.DefaultNamespace, "grepped", spec, 0); err != nil {
		s.Fatal(err)
	}
}

// job starts or stops the job that uses the volume.
func (s *secretsTest) job(run bool) {
	s.Helper()
	var err error
	if run {
		_, err = s.c.Client.ApplyJob(s.Context(), api.DefaultNamespace, "user", api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{{
			Name: "g", Count: 1, Tasks: []api.Task{{Name: "t", Driver: "test", VolumeMounts: []api.VolumeMount{{Volume: "data", Destination: "/data"}}}},
			Volumes: []api.VolumeRequest{{
				Name: "data", Type: api.VolumeTypeCSI, Source: "grepped", AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem,
			}},
		}}}, 0)
	} else {
		_, err = s.c.Client.StopJob(s.Context(), api.DefaultNamespace, "user", 0)
	}
	if err != nil {
		s.Fatal(err)
	}
}

func (s *secretsTest) volume() api.VolumeInfo {
	s.Helper()
	v, _, err := s.c.Client.Volume(s.Context(), api.DefaultNamespace, "grepped", client.Query{})
	if err != nil {
		s.Fatal(err)
	}
	return v
}

// published reports whether the job has the volume mounted.
func (s *secretsTest) published() bool {
	a := s.volume().Attachments
	return len(a) == 1 && a[0].Status.State == api.NodePublished
}

// until waits for something.
func (s *secretsTest) until(what string, there func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !there() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.Fatalf("not within %s: %s\n%+v", limit, what, s.answers())
		}
	}
}

// answers is what the API says of everything.
func (s *secretsTest) answers() string {
	s.Helper()
	ctx, q := s.Context(), client.Query{}
	var all strings.Builder
	say := func(v any, err error) {
		b, _ := json.Marshal(v)
		all.Write(b)
		if err != nil {
			all.WriteString(err.Error())
		}
	}
	volumes, _, err := s.c.Client.Volumes(ctx, q)
	say(volumes, err)
	volume, _, err := s.c.Client.Volume(ctx, api.DefaultNamespace, "grepped", q)
	say(volume, err)
	operations, _, err := s.c.Client.Operations(ctx, q)
	say(operations, err)
	jobs, _, err := s.c.Client.Jobs(ctx, q)
	say(jobs, err)
	status, err := s.c.Client.Status(ctx)
	say(status, err)
	return all.String()
}

// wantCalls checks which calls had the secrets (CSI spec, Secrets Requirements).
func (s *secretsTest) wantCalls() {
	s.Helper()
	with := map[string]bool{}
	for _, c := range s.c.Backend.Calls() {
		if strings.Contains(string(c.Request), firstSecret) || strings.Contains(string(c.Request), secondSecret) {
			with[c.Method] = true
		}
	}
	want := map[string]bool{
		"CreateVolume": true, "DeleteVolume": true, "ControllerPublishVolume": true, "ControllerUnpublishVolume": true,
		"NodeStageVolume": true, "NodePublishVolume": true,
	}
	if diff := cmp.Diff(want, with); diff != "" {
		s.Errorf("calls with secrets (-want +got):\n%s", diff)
	}
}

// wantNowhere checks that a text has none of the secrets, in any form that
// keeps them readable.
func (s *secretsTest) wantNowhere(where, text string) {
	s.Helper()
	for _, secret := range []string{firstSecret, secondSecret} {
		for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))[:16], hex.EncodeToString([]byte(secret))} {
			if i := strings.Index(text, form); i >= 0 {
				s.Errorf("%s has a secret: %.300s", where, text[max(0, i-150):])
			}
		}
	}
}

// files is the content of all files below a directory.
func files(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		all.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
