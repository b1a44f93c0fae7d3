package docker_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/driver/docker"
	"github.com/berth-dev/berth/internal/agent/driver/docker/dockertest"
)

// TestPulls: an engine that reaches registries, and has a bridge.
func TestPulls(t *testing.T) {
	t.Parallel()
	engine := dockertest.StartBridged(t)
	for name, test := range map[string]func(*world){
		"Once": testPulledOnce, "Progress": testPullProgress, "Digest": testPullDigest, "Credentials": testPullCredentials,
		"Missing": testPullMissing, "ForcePull": testForcePull, "Removed": testImageRemoved, "Operators": testOperatorsImage,
		"TwoNames": testTwoNames,
		"Ports":    testPorts,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, engine))
		})
	}
}

// files are those of an image that tells which it is, and that no other test has:
// to an engine, images with the same files are one.
func (w *world) files(name string) []byte {
	w.Helper()
	path := filepath.Join(w.dir, "version-"+name)
	whose := filepath.Join(w.dir, "whose")
	if err := errors.Join(os.WriteFile(path, []byte(name), 0o600), os.WriteFile(whose, []byte(w.dir), 0o600)); err != nil {
		w.Fatal(err)
	}
	return dockertest.Tar(w, map[string]string{"/version": path, "/whose": whose})
}

// run runs a task of an image to its end, and answers what it wrote.
func (w *world) run(d *docker.Driver, id, image string, config map[string]any) (string, error) {
	w.Helper()
	spec := w.spec(id, "cat /version")
	spec.Task.Config["image"] = image
	maps.Copy(spec.Task.Config, config)
	if err := d.Start(w.Context(), spec); err != nil {
		return "", err
	}
	defer w.destroy(d, spec)
	if status := w.wait(d, spec); status.ExitCode != 0 {
		return "", fmt.Errorf("it ended as %+v and said %s", status, w.log(spec, api.LogStderr))
	}
	return strings.TrimSpace(w.log(spec, api.LogStdout)), nil
}

func (w *world) has(image string) bool {
	w.Helper()
	_, err := w.engine.Client.ImageInspect(w.Context(), image)
	return err == nil
}

func (w *world) removed(image string) {
	w.Helper()
	w.eventually("the image is removed", func() error {
		if w.has(image) {
			return errors.New("it is there")
		}
		return nil
	})
}

func (w *world) nothingRecorded() {
	w.Helper()
	w.eventually("nothing is recorded of images any more", func() error {
		if left, _ := filepath.Glob(filepath.Join(w.config.StateDir, "images", "*")); len(left) > 0 {
			return fmt.Errorf("%q is left", left)
		}
		return nil
	})
}

// testPulledOnce: an image that is not there is pulled, and then it is there.
func testPulledOnce(w *world) {
	registry := dockertest.StartRegistry(w, "")
	registry.Push("app", "1", w.files("one"))
	image := registry.Host + "/app:1"
	d, _ := w.agent()
	for _, id := range []string{"once/main", "again/main"} {
		if out, err := w.run(d, id, image, nil); out != "one" || err != nil {
			w.Fatalf("it says %q (%v)", out, err)
		}
	}
	if said := w.saidAll(); strings.Count(said, "pulling image "+image) != 1 || strings.Count(said, "pulled image "+image+" in ") != 1 {
		w.Errorf("it is said:\n%s", said)
	}
}

// testPullProgress: who waits for a big image is told how far it is.
func testPullProgress(w *world) {
	registry := dockertest.StartRegistry(w, "")
	big := filepath.Join(w.dir, "big")
	noise := make([]byte, 16<<20)
	_, _ = rand.Read(noise) // never fails
	if err := os.WriteFile(big, noise, 0o600); err != nil {
		w.Fatal(err)
	}
	registry.Push("big", "1", dockertest.Tar(w, map[string]string{"/version": big}))
	registry.Hold()
	d, _ := w.agent()
	d.SayAtOnce()
	spec := w.spec("big/main", "exit 0")
	spec.Task.Config["image"] = registry.Host + "/big:1"
	done := make(chan error, 1)
	go func() { done <- d.Start(w.Context(), spec) }()
	w.eventually("it is said how far it is", func() error {
		for line := range strings.Lines(w.saidAll()) {
			var have, all int
			if _, rest, ok := strings.Cut(line, "/big:1: "); ok {
				if _, err := fmt.Sscanf(rest, "%d of %d MiB", &have, &all); err == nil && have > 0 && have < all && all >= 16 {
					return nil
				}
			}
		}
		return fmt.Errorf("it is said:\n%s", w.saidAll())
	})
	registry.Release()
	if err := <-done; err != nil {
		w.Fatal(err)
	}
	w.wait(d, spec)
	w.destroy(d, spec)
}

// testPullDigest: a tag that moves moves no task that names a digest.
func testPullDigest(w *world) {
	registry := dockertest.StartRegistry(w, "")
	digest := registry.Push("app", "1", w.files("one"))
	registry.Push("app", "1", w.files("two"))
	d, _ := w.agent()
	image := registry.Host + "/app@" + digest
	if out, err := w.run(d, "digest/main", image, nil); out != "one" || err != nil {
		w.Errorf("it says %q (%v)", out, err)
	}
	asked := registry.Asked("app")
	if out, err := w.run(d, "digest2/main", image, nil); out != "one" || err != nil || registry.Asked("app") != asked {
		w.Errorf("it says %q (%v), and was asked %d times, not %d", out, err, registry.Asked("app"), asked)
	}
	wrong := registry.Host + "/app@sha256:" + strings.Repeat("0", 64)
	if _, err := w.run(d, "digest3/main", wrong, nil); !isNotStarted(err) {
		w.Errorf("of a digest that is nowhere: %v", err)
	}
}

func isNotStarted(err error) bool {
	_, is := errors.AsType[*driver.NotStarted](err)
	return is
}

// testPullCredentials: the task's own, or the node's; never in an error.
func testPullCredentials(w *world) {
	registry := dockertest.StartRegistry(w, "somebody:very-secret")
	registry.Push("private", "1", w.files("mine"))
	image := registry.Host + "/private:1"
	d, _ := w.agent()
	if _, err := w.run(d, "auth1/main", image, nil); !isNotStarted(err) || !strings.Contains(err.Error(), "pull image "+image) {
		w.Errorf("without credentials: %v", err)
	}
	wrong := map[string]any{"auth": map[string]any{"username": "somebody", "password": "hunter2"}}
	if _, err := w.run(d, "auth2/main", image, wrong); !isNotStarted(err) || strings.Contains(err.Error(), "hunter2") {
		w.Errorf("with wrong credentials: %v", err)
	}
	right := map[string]any{"auth": map[string]any{"username": "somebody", "password": "very-secret"}}
	if out, err := w.run(d, "auth3/main", image, right); out != "mine" || err != nil {
		w.Errorf("with its own: it says %q (%v)", out, err)
	}
	w.config.AuthFile = filepath.Join(w.dir, "auth.json")
	operators, _ := w.agent()
	forced := map[string]any{"force_pull": true}
	if _, err := w.run(operators, "auth4/main", image, forced); err == nil || !strings.Contains(err.Error(), "the node's credentials") {
		w.Errorf("without the node's file: %v", err)
	}
	file := fmt.Sprintf(`{"auths": {"http://%s/v2/": {"auth": %q}}}`, registry.Host, base64.StdEncoding.EncodeToString([]byte("somebody:very-secret")))
	if err := os.WriteFile(w.config.AuthFile, []byte(file), 0o600); err != nil {
		w.Fatal(err)
	}
	if out, err := w.run(operators, "auth5/main", image, forced); out != "mine" || err != nil {
		w.Errorf("with the node's: it says %q (%v)", out, err)
	}
	if strings.Contains(w.saidAll(), "very-secret") || strings.Contains(w.saidAll(), "hunter2") {
		w.Errorf("a secret is said:\n%s", w.saidAll())
	}
}

func testPullMissing(w *world) {
	registry := dockertest.StartRegistry(w, "")
	d, _ := w.agent()
	if _, err := w.run(d, "missing/main", registry.Host+"/nothing:1", nil); !isNotStarted(err) || !strings.Contains(err.Error(), "/nothing:1: ") {
		w.Errorf("of an image that is nowhere: %v", err)
	}
	gone := dockertest.StartRegistry(w, "")
	gone.Push("app", "1", w.files("one"))
	if _, err := w.run(d, "missing2/main", "127.0.0.1:1/app:1", nil); !isNotStarted(err) {
		w.Errorf("of a registry that is nowhere: %v", err)
	}
}

// testForcePull: what a tag means now; the image that it meant before goes when
// nobody has it.
func testForcePull(w *world) {
	registry := dockertest.StartRegistry(w, "")
	registry.Push("app", "latest", w.files("one"))
	image := registry.Host + "/app"
	w.config.ImageDelay = time.Millisecond
	d, kill := w.agent()
	keeper := w.spec("force0/main", "exec sleep 100000")
	keeper.Task.Config["image"] = image
	w.start(d, keeper)
	was, err := w.engine.Client.ImageInspect(w.Context(), image)
	if err != nil {
		w.Fatal(err)
	}
	registry.Push("app", "latest", w.files("two"))
	if out, err := w.run(d, "force1/main", image, nil); out != "one" || err != nil {
		w.Errorf("without it, it says %q (%v)", out, err)
	}
	if out, err := w.run(d, "force2/main", image, map[string]any{"force_pull": true}); out != "two" || err != nil {
		w.Errorf("with it, it says %q (%v)", out, err)
	}
	kill()
	next, _ := w.agent()
	w.removed(image) // the newer one: nobody has it
	if !w.has(was.ID) {
		w.Error("an image is gone that a container has")
	}
	w.destroy(next, keeper)
	w.removed(was.ID)
	w.nothingRecorded()
}

// testImageRemoved: after a while, however many agents come and go, and not
// before.
func testImageRemoved(w *world) {
	registry := dockertest.StartRegistry(w, "")
	registry.Push("kept", "1", w.files("kept"))
	registry.Push("app", "1", w.files("one"))
	kept, image := registry.Host+"/kept:1", registry.Host+"/app:1"
	d, kill := w.agent() // which waits for hours
	for id, image := range map[string]string{"r1/main": kept, "r2/main": image} {
		if _, err := w.run(d, id, image, nil); err != nil {
			w.Fatal(err)
		}
	}
	kill()
	// Nobody has had them for longer than that when they are looked at again.
	tidy := func(delay time.Duration) {
		w.config.ImageDelay = delay
		quiet, err := docker.New(w.config, slog.New(slog.DiscardHandler))
		if err != nil {
			w.Fatal(err)
		}
		for range 2 {
			if err := quiet.TidyImages(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
		if !w.has(kept) || !w.has(image) {
			w.Fatalf("with a delay of %s, an image is gone too early", delay)
		}
		for _, image := range []string{kept, image} {
			if since := quiet.Unused(image); since.IsZero() || time.Since(since) > time.Hour {
				w.Fatalf("with a delay of %s, image %s is unused since %s", delay, image, since)
			}
		}
	}
	tidy(time.Hour)
	tidy(-1)
	w.config.ImageDelay = -1
	d, kill = w.agent()
	spec := w.spec("r3/main", "exit 0")
	spec.Task.Config["image"] = kept
	w.start(d, spec)
	if since := d.Unused(kept); !since.IsZero() {
		w.Errorf("a task was started from an image that is unused since %s", since)
	}
	w.wait(d, spec)
	kill()
	if !w.has(kept) || !w.has(image) {
		w.Fatal("an image is gone that is to stay for ever")
	}
	w.destroy(d, spec)
	w.config.ImageDelay = time.Millisecond
	d, _ = w.agent()
	holder := w.spec("r4/main", "exec sleep 100000")
	holder.Task.Config["image"] = kept
	w.start(d, holder)
	w.removed(image)
	w.destroy(d, holder)
	w.removed(kept)
}

// testOperatorsImage: what somebody else put there stays, also if tasks ran from
// it, if it was pulled anew, and if it took the name of one of the agent's.
func testOperatorsImage(w *world) {
	registry := dockertest.StartRegistry(w, "")
	for _, name := range []string{"theirs", "renamed", "ours", "again"} {
		registry.Push(name, "1", w.files(name))
	}
	theirs, renamed, ours := registry.Host+"/theirs:1", registry.Host+"/renamed:1", registry.Host+"/ours:1"
	again := registry.Host + "/again:1"
	pull := func(image string) {
		pulled, err := w.engine.Client.ImagePull(w.Context(), image, client.ImagePullOptions{})
		if err == nil {
			err = pulled.Wait(w.Context())
		}
		if err != nil {
			w.Fatal(err)
		}
	}
	pull(theirs)
	d, kill := w.agent()
	if _, err := w.run(d, "o1/main", theirs, map[string]any{"force_pull": true}); err != nil {
		w.Fatal(err)
	}
	registry.Push("theirs", "1", w.files("newer"))
	if out, err := w.run(d, "o2/main", theirs, map[string]any{"force_pull": true}); out != "newer" || err != nil {
		w.Fatalf("it says %q (%v)", out, err)
	}
	for id, image := range map[string]string{"o3/main": renamed, "o4/main": ours, "o5/main": again} {
		if _, err := w.run(d, id, image, nil); err != nil {
			w.Fatal(err)
		}
	}
	kill()
	w.engine.Import(renamed, w.files("built"))
	if _, err := w.engine.Client.ImageRemove(w.Context(), again, client.ImageRemoveOptions{}); err != nil {
		w.Fatal(err)
	}
	pull(again) // the same one, while no agent looks: it was taken for the agent's
	w.config.ImageDelay = time.Millisecond
	w.agent()
	w.removed(ours)
	w.nothingRecorded()
	for _, image := range []string{theirs, renamed, again, dockertest.Busybox} {
		if !w.has(image) {
			w.Errorf("image %s is gone, and is somebody else's", image)
		}
	}
}

// testTwoNames: what the agent pulled under two names goes with both.
func testTwoNames(w *world) {
	registry := dockertest.StartRegistry(w, "")
	files := w.files("both")
	registry.Push("one", "1", files)
	registry.Push("two", "1", files)
	one, two := registry.Host+"/one:1", registry.Host+"/two:1"
	d, kill := w.agent()
	for id, image := range map[string]string{"n1/main": one, "n2/main": two} {
		if _, err := w.run(d, id, image, nil); err != nil {
			w.Fatal(err)
		}
	}
	kill()
	w.config.ImageDelay = time.Millisecond
	w.agent()
	w.nothingRecorded()
	w.removed(one)
	w.removed(two)
}

// testPorts: a port of the machine leads to the one that the task listens on.
func testPorts(w *world) {
	d, _ := w.agent()
	spec := w.spec("ports/main", "while :; do echo hello | nc -l -p 8080; done")
	spec.Task.Config["network_mode"] = "bridge"
	spec.Task.Config["ports"] = []any{"http"}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	addr := free.Addr().(*net.TCPAddr)
	_ = free.Close() // for the engine to take
	spec.Ports = []driver.Port{{Name: "other", Number: 1}, {Name: "http", Number: addr.Port, To: 8080}}
	w.start(d, spec)
	defer w.destroy(d, spec)
	w.eventually("the task answers", func() error {
		conn, err := net.DialTimeout("tcp", addr.String(), time.Second)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second)) // never fails
		got := make([]byte, 6)
		if n, err := conn.Read(got); string(got[:n]) != "hello\n" {
			return fmt.Errorf("it says %q (%w)", got[:n], err)
		}
		return nil
	})
}

// TestCredentials: where they come from, and whose they are.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	helper := "#!/bin/sh\nread server\ncase $server in\nhelped.example) echo '{\"Username\":\"h\",\"Secret\":\"hs\"}';;\ntoken.example) echo '{\"Username\":\"<token>\",\"Secret\":\"t\"}';;\n" +
		"broken.example) echo no keys today; exit 1;;\nodd.example) echo '{}';;\n*) echo credentials not found in native keychain; exit 1;;\nesac\n"
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-berthtest"), []byte(helper), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	path := filepath.Join(dir, "config.json")
	d, err := docker.New(docker.Config{Agent: dir, StateDir: dir, AuthFile: path}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	auth := base64.StdEncoding.EncodeToString([]byte("u:p:w"))
	write(`{"auths": {"https://index.docker.io/v1/": {"auth": "` + auth + `"}, "plain.example:5000": {"username": "u", "password": "p"}, "bad.example": {"auth": "eA=="},
		"id.example": {"identitytoken": "i"}, "helped.example": {}}, "credHelpers": {"helped.example": "berthtest", "nowhere.example": "../sh", "none.example": "berthtest"}, "credsStore": "berthtest", "HttpHeaders": {}}`)
	for image, want := range map[string]string{
		"postgres:16": "u p:w  https://index.docker.io/v1/", "docker.io/me/mine": "u p:w  https://index.docker.io/v1/", "plain.example:5000/a/b@sha256:" + strings.Repeat("0", 64): "u p  plain.example:5000",
		"id.example/x": "  i id.example", "helped.example/x": "h hs  helped.example", "token.example/x": "  t token.example",
		"none.example/x": "none", "plain.example/x": "none", "broken.example/x": "no keys today", "odd.example/x": "no credentials",
		"bad.example/x": "those of bad.example are no user and password", "nowhere.example/x": `"../sh" is no name of a credential helper`,
	} {
		got, err := d.Credentials(context.Background(), image)
		is := "none"
		switch {
		case err != nil:
			is = err.Error()
		case got != nil:
			is = strings.Join([]string{got.Username, got.Password, got.IdentityToken, got.ServerAddress}, " ")
		}
		if is != want && (err == nil || !strings.Contains(is, want)) {
			t.Errorf("%s: %q, not %q", image, is, want)
		}
	}
	write(`{"auths": {"https://index.docker.io/v1/": {"username": "hub", "password": "p"}, "https://index.docker.io/v1/access-token": {"username": "hub", "password": "access"},
		"https://index.docker.io/v1/refresh-token": {"username": "hub", "password": "refresh"}, "docker.io": {"username": "other", "password": "p"}, "docker.io/team": {"username": "team", "password": "p"},
		"reg.example/team-a": {"username": "a", "password": "p"}, "reg.example/team-b": {"username": "b", "password": "p"}, "reg.example/team-b/deep": {},
		"reg.example/team-c/app": {"username": "c", "password": "p"}, "https://all.example/v2/": {"username": "all", "password": "p"}, "all.example/some": {"username": "some", "password": "p"}},
		"credHelpers": {"help.example/mine": "berthtest", "help.example": "nowhere"}}`)
	for image, want := range map[string]string{
		"postgres": "hub p", "me/app": "hub p", "v1/access-token": "hub p", "team/app": "team p", "team-b/app": "hub p",
		"reg.example/team-a/app:1": "a p", "reg.example/team-b/app": "b p", "reg.example/team-b/deep/app": "b p", "reg.example/team-c/app": "c p",
		"reg.example/team-ab/app": "none", "reg.example/app": "none", "reg.example/team-c/apple": "none",
		"all.example/app": "all p", "all.example/some/app": "some p", "help.example/mine/app": "none",
	} {
		for range 20 { // maps have no order
			is := "none"
			got, err := d.Credentials(context.Background(), image)
			if got != nil {
				is = got.Username + " " + got.Password
			}
			if err != nil || is != want {
				t.Fatalf("%s: %q (%v), not %q", image, is, err, want)
			}
		}
	}
	write(`{"auths": {"secret-word`)
	if _, err := d.Credentials(context.Background(), "postgres"); err == nil || strings.Contains(err.Error(), "secret-word") {
		t.Errorf("a file that is cut off: %v", err)
	}
}

// TestWhatTheEngineIsAskedFor: what it takes no real engine to see.
func TestWhatTheEngineIsAskedFor(t *testing.T) {
	t.Parallel()
	d := newDriver(t, docker.Config{})
	spec := driver.Spec{ID: "a/t", Dir: t.TempDir(), Ports: []driver.Port{{Name: "http", Number: 20000, To: 80}, {Name: "same", Number: 20001}}, Task: api.Task{
		Name: "t", Driver: "docker", Config: map[string]any{
			"image": "x", "ports": []any{"http", "same"}, "tty": true, "interactive": true,
			"mount": map[string]any{"type": "tmpfs", "target": "/scratch", "tmpfs_options": map[string]any{"size": 1048576.0, "mode": "0700"}},
		},
	}}
	got, err := d.Options(&spec)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Config.Tty || !got.Config.OpenStdin || len(got.Config.ExposedPorts) != 4 {
		t.Errorf("the container is %+v", got.Config)
	}
	bound := map[string]string{}
	for port, to := range got.HostConfig.PortBindings {
		bound[port.String()] = to[0].HostPort
	}
	if fmt.Sprint(bound) != "map[20001/tcp:20001 20001/udp:20001 80/tcp:20000 80/udp:20000]" {
		t.Errorf("the ports are %v", bound)
	}
	for _, m := range got.HostConfig.Mounts {
		if m.Target == "/scratch" && (m.TmpfsOptions == nil || m.TmpfsOptions.Mode != 0o700 || m.TmpfsOptions.SizeBytes != 1<<20) {
			t.Errorf("the tmpfs is %+v", m.TmpfsOptions)
		}
	}
	for _, wrong := range []any{511.0, "rwx", "0", "17777"} {
		spec.Task.Config["mount"] = map[string]any{"type": "tmpfs", "target": "/scratch", "tmpfs_options": map[string]any{"mode": wrong}}
		if err := d.Check(spec.Task); err == nil || !strings.Contains(err.Error(), "tmpfs_options.mode is") {
			t.Errorf("mode %v: %v", wrong, err)
		}
	}
	spec.Task.Config["mount"] = map[string]any{"type": "bind", "source": "local", "target": "/x", "tmpfs_options": map[string]any{"size": 1.0}}
	if err := d.Check(spec.Task); err == nil || !strings.Contains(err.Error(), "tmpfs_options means nothing here") {
		t.Errorf("a bind with options of a tmpfs: %v", err)
	}
}
