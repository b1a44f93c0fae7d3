package docker_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/docker"
)

func newDriver(t *testing.T, cfg docker.Config) *docker.Driver {
	t.Helper()
	cfg.Agent, cfg.StateDir = "/agent", "/agent/state"
	d, err := docker.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// vendors is a config with all that jobs of other people hold.
func vendors() map[string]any {
	return map[string]any{
		"image": "registry.k8s.io/sig-storage/csi-node:v2.5.0", "args": []any{"--endpoint=unix://csi/csi.sock", "--v=5"}, "command": "/driver",
		"entrypoint": []any{"/init", "--"}, "privileged": true, "cap_add": []any{"SYS_ADMIN", "cap_net_admin"}, "cap_drop": []any{"all"},
		"devices": []any{map[string]any{"host_path": "/dev/fuse"}}, "ports": []any{"http"}, "network_mode": "host", "ipc_mode": "host", "pid_mode": "host",
		"volumes": []any{"/dev:/dev", "local/config:/etc/driver:ro", "/run/udev:/run/udev:rslave,ro"},
		"mount": []any{
			map[string]any{"type": "bind", "source": "/dev", "target": "/host/dev", "readonly": false, "bind_options": []any{map[string]any{"propagation": "rshared"}}},
			map[string]any{"type": "tmpfs", "target": "/scratch", "tmpfs_options": map[string]any{"size": 1048576.0}},
		},
		"labels": []any{map[string]any{"team": "storage"}}, "hostname": "driver", "dns": []any{"10.0.0.53"}, "extra_hosts": []any{"db:10.0.0.7"},
		"readonly_rootfs": true, "security_opt": []any{"no-new-privileges"}, "ulimit": map[string]any{"nofile": "1024:2048", "nproc": 42.0},
		"sysctl": map[string]any{"net.core.somaxconn": "1024"}, "shm_size": 67108864.0, "force_pull": "true", "image_pull_timeout": "10m", "init": true,
		"auth":     []any{map[string]any{"username": "u", "password": "p", "server_address": "registry.k8s.io"}},
		"work_dir": "/srv", "logging": []any{map[string]any{"type": "syslog"}},
	}
}

func TestVendorsConfigIsTaken(t *testing.T) {
	t.Parallel()
	d := newDriver(t, docker.Config{AllowPrivileged: true, AllowHostPaths: true})
	task := api.Task{Name: "plugin", Driver: "docker", Config: vendors(), VolumeMounts: []api.VolumeMount{{Volume: "v", Destination: "/data"}}}
	if err := d.Check(task); err != nil {
		t.Error(err)
	}
}

// TestWhatIsNotAllowed: without the operator's word, nothing that gives the
// machine away, and each is named.
func TestWhatIsNotAllowed(t *testing.T) {
	t.Parallel()
	err := newDriver(t, docker.Config{AllowCaps: []string{"net_admin"}}).Check(api.Task{Name: "plugin", Driver: "docker", Config: vendors()})
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, want := range []string{
		"config.privileged is true", "config.cap_add[0] is sys_admin", "config.devices is \"/dev/fuse\"", "config.ipc_mode is \"host\"", "config.pid_mode is \"host\"",
		"config.volumes[0] is \"/dev\"", "config.volumes[2] is \"/run/udev\"", "config.mount[0].source is \"/dev\"", "allow_privileged = true", "allow_host_paths = true", "allow_caps",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q:\n%v", want, err)
		}
	}
	for _, allowed := range []string{"cap_add[1]", "volumes[1]", "network_mode", "mount[1]"} {
		if strings.Contains(err.Error(), "config."+allowed) {
			t.Errorf("it refuses %s:\n%v", allowed, err)
		}
	}
}

// TestWhatGivesRightsIsNotAllowed: security options and binds that would give a
// task the machine by another name.
func TestWhatGivesRightsIsNotAllowed(t *testing.T) {
	t.Parallel()
	check := func(cfg docker.Config, name, value string) error {
		return newDriver(t, cfg).Check(api.Task{Name: "t", Driver: "docker", Config: map[string]any{"image": "x", name: []any{value}}})
	}
	for _, option := range []string{
		"seccomp=unconfined", `seccomp={"defaultAction":"SCMP_ACT_ALLOW"}`, "apparmor=unconfined", "apparmor=mine", "label=disable", "label=type:spc_t",
		"writable-cgroups=true", "systempaths=unconfined", "no-new-privileges=false",
	} {
		if err := check(docker.Config{}, "security_opt", option); err == nil || !strings.Contains(err.Error(), "config.security_opt[0] is") {
			t.Errorf("%s: %v", option, err)
		}
		if err := check(docker.Config{AllowPrivileged: true}, "security_opt", option); err != nil {
			t.Errorf("%s, and the operator allows it: %v", option, err)
		}
	}
	for _, option := range []string{"no-new-privileges", "no-new-privileges=true", "seccomp=builtin"} {
		if err := check(docker.Config{}, "security_opt", option); err != nil {
			t.Errorf("%s: %v", option, err)
		}
	}
	for _, bind := range []string{".:/task", "./:/task", "logs:/x", "./logs/../logs:/x", "..:/x", "alloc:/x", "local/..:/x"} {
		if err := check(docker.Config{}, "volumes", bind); err == nil || !strings.Contains(err.Error(), "the task's own directories: local, secrets, tmp") {
			t.Errorf("%s: %v", bind, err)
		}
	}
	for _, bind := range []string{"local:/x", "./local/etc:/etc/x:ro", "secrets:/y", "tmp:/z"} {
		if err := check(docker.Config{}, "volumes", bind); err != nil {
			t.Errorf("%s: %v", bind, err)
		}
	}
}

// TestMistakesAreNamed all at once.
func TestMistakesAreNamed(t *testing.T) {
	t.Parallel()
	d := newDriver(t, docker.Config{AllowPrivileged: true, AllowHostPaths: true})
	err := d.Check(api.Task{Name: "t", Driver: "docker", VolumeMounts: []api.VolumeMount{
		{Volume: "a", Destination: "/data"}, {Volume: "b", Destination: "/data"}, {Volume: "c", Destination: "/local"}, {Volume: "d", Destination: "/proc/x"},
	}, Config: map[string]any{
		"imagee": "x", "privileged": "perhaps", "cap_add": []any{"fly"}, "args": 7.5, "dns": []any{"name"}, "extra_hosts": []any{"name"}, "ulimit": map[string]any{"nofile": "many"},
		"volumes": []any{"/x", "../x:/y", "/x:/data"}, "mount": map[string]any{"type": "nfs", "target": "rel", "bind_options": map[string]any{"propagation": "up"}},
		"network_mode": "container:db", "image_pull_timeout": "soon", "shm_size": -1.0, "pid_mode": "task", "work_dir": "srv", "labels": map[string]any{"dev.berth.agent": "x"},
	}})
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, want := range []string{
		"config.image is missing", "config.imagee is not known; did you mean image?", "config.privileged is \"perhaps\"", "config.cap_add[0] is \"fly\"", "config.args is 7.5", "config.dns[0] is \"name\"",
		"config.extra_hosts[0] is", "config.ulimit.nofile is \"many\"", "config.volumes[0] is \"/x\"", "config.volumes[1] is \"../x\"", "mounts /x at /data, where volume b is",
		"config.mount.type is \"nfs\"", "config.mount.target is \"rel\"", "config.mount.bind_options.propagation is \"up\"", "config.network_mode is \"container:db\"", "config.image_pull_timeout is \"soon\"",
		"config.shm_size is -1", "config.pid_mode is \"task\"", "config.work_dir is \"srv\"", "config.labels.dev.berth.agent", "volume_mount[1].destination is /data", "volume_mount[2].destination is /local",
		"volume_mount[3].destination is /proc/x",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q:\n%v", want, err)
		}
	}
}

// TestCredentialsThatCannotBeReadAreNotShown: what was wrong with them was told with
// the password in it.
func TestCredentialsThatCannotBeReadAreNotShown(t *testing.T) {
	t.Parallel()
	d := newDriver(t, docker.Config{})
	const secret = "very-secret"
	for _, auth := range []any{
		secret, []any{secret}, map[string]any{"username": "u", "password": []any{secret}}, map[string]any{"password": map[string]any{"is": secret}},
		map[string]any{"username": "u", "password": secret + "\x00"},
	} {
		err := d.Check(api.Task{Name: "t", Driver: "docker", Config: map[string]any{"image": "i", "auth": auth}})
		if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "config.auth") {
			t.Errorf("%v: %v", auth, err)
		}
	}
}
