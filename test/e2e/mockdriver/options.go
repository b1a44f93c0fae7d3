package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

// options is the command line.
type options struct {
	// socket is the path that -endpoint names.
	socket string
	// driver is handed to the mock as it is.
	driver service.Config
	// disableStage takes STAGE_UNSTAGE_VOLUME out of what the mock answers.
	disableStage bool
	// calls is the file that calls are appended to.
	calls string
	// realMounts has published volumes bind-mounted from below stateDir; an
	// empty stateDir asks for a temporary one.
	realMounts bool
	// fuseMounts has this process serve what is mounted, fuseApart one for each
	// mount.
	fuseMounts, fuseApart bool
	// serveFuse is the mount that this process serves, and nothing else.
	serveFuse string
	stateDir  string
	// moreVolumes are there from the beginning, beside the mock's own.
	moreVolumes int
	faults      faults
	// secrets are what each call that takes secrets must come with.
	secrets secrets
	// dieIn is the method in whose first call the process exits; empty for none.
	dieIn string
}

// parseOptions reads args; endpoint is what the environment offers. An error
// has been printed, with the usage, when it is returned.
func parseOptions(args []string, endpoint string) (options, error) {
	opts := options{secrets: secrets{}}
	flags := flag.NewFlagSet("mockdriver", flag.ContinueOnError)
	flags.StringVar(&endpoint, "endpoint", endpoint,
		"serve on this `socket`, unix:///path; default is CSI_ENDPOINT")
	flags.StringVar(&opts.driver.DriverName, "name", service.Name, "the plugin's `name`, which is its node id too")
	flags.BoolVar(&opts.driver.DisableAttach, "disable-attach", false, "lack PUBLISH_UNPUBLISH_VOLUME")
	flags.BoolVar(&opts.disableStage, "disable-stage", false, "lack STAGE_UNSTAGE_VOLUME")
	flags.Int64Var(&opts.driver.AttachLimit, "attach-limit", 0, "at most `n` volumes on the node; 0 names no limit")
	flags.BoolVar(&opts.driver.NodeExpansionRequired, "node-expansion-required", false, "have nodes expand what the controller has expanded")
	flags.BoolVar(&opts.driver.DisableOnlineExpansion, "disable-online-expansion", false, "expand only volumes that are not attached (OFFLINE)")
	flags.BoolVar(&opts.driver.DisableControllerExpansion, "disable-controller-expansion", false, "lack the controller's EXPAND_VOLUME")
	flags.BoolVar(&opts.driver.EnableTopology, "topology", false, "put the node and all volumes into one topology segment")
	flags.BoolVar(&opts.driver.PermissiveTargetPath, "permissive-target-path", false,
		"handed to the mock, which so far accepts a target path that is there either way")
	flags.StringVar(&opts.calls, "calls", os.DevNull, "append each call to `file`, one JSON object a line")
	flags.BoolVar(&opts.realMounts, "real-mounts", false, "bind-mount a directory at published target paths")
	flags.BoolVar(&opts.fuseMounts, "fuse-mounts", false, "under -real-mounts, mount an empty FUSE file system that ends with this process")
	flags.BoolVar(&opts.fuseApart, "fuse-apart", false, "under -fuse-mounts, serve each mount by a process of its own, which ends with this one")
	flags.StringVar(&opts.serveFuse, "serve-fuse", "", "mount an empty FUSE file system at `target`, say so, and serve it and nothing else")
	flags.StringVar(&opts.stateDir, "state-dir", "",
		"`directory` for the volumes' data under -real-mounts; default is a temporary one")
	flags.IntVar(&opts.moreVolumes, "more-volumes", 0, "begin with `n` volumes more than the mock does, numbered from 4")
	flags.Var(&opts.faults, "fault",
		"`METHOD:CODE:N` answers the first N calls of METHOD with CODE, such as CreateVolume:UNAVAILABLE:2; repeatable")
	flags.Var(opts.secrets, "secret",
		"`KEY=VALUE` answers calls that take secrets with UNAUTHENTICATED if this is not among them; repeatable")
	flags.StringVar(&opts.dieIn, "die-in", "", "exit in the first call of `METHOD`, done but not answered")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}

	if err := opts.finish(endpoint, flags.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		flags.Usage()
		return options{}, err
	}
	return opts, nil
}

// finish checks what is left when each flag has been read, all of it, and
// derives the socket.
func (o *options) finish(endpoint string, rest []string) error {
	var problems []error
	addf := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(format, args...))
	}

	if o.serveFuse != "" {
		return nil
	}
	socket, isUnix := strings.CutPrefix(endpoint, "unix://")
	if !isUnix || !filepath.IsAbs(socket) {
		addf("-endpoint %q: give unix:// and an absolute path", endpoint)
	}
	o.socket = socket
	if o.driver.AttachLimit < 0 {
		addf("-attach-limit %d: give 0 or more", o.driver.AttachLimit)
	}
	if o.stateDir != "" && !o.realMounts {
		addf("-state-dir %q: serves -real-mounts only", o.stateDir)
	}
	if o.fuseMounts && !o.realMounts {
		addf("-fuse-mounts: serves -real-mounts only")
	}
	if o.moreVolumes < 0 {
		addf("-more-volumes %d: give 0 or more", o.moreVolumes)
	}
	if o.fuseApart && !o.fuseMounts {
		addf("-fuse-apart: serves -fuse-mounts only")
	}
	for _, f := range o.faults {
		if !isMethod(f.method) {
			addf("-fault: the mock has no method %q", f.method)
		}
	}
	if o.dieIn != "" && !isMethod(o.dieIn) {
		addf("-die-in: the mock has no method %q", o.dieIn)
	}
	if len(rest) > 0 {
		addf("arguments %q: there are only flags", rest)
	}
	return errors.Join(problems...)
}

// isMethod reports whether the mock serves an RPC of that name. The generated
// server interfaces have exactly one method for each, and no name twice.
func isMethod(name string) bool {
	_, ok := reflect.TypeFor[service.Service]().MethodByName(name)
	return ok
}
