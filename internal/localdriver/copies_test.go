package localdriver_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/internal/localdriver/record"
)

// held runs a driver whose copies stop short of their end until goOn.
func (r *rig) held(times int) (reached <-chan struct{}, goOn chan<- struct{}, stop func()) {
	r.t.Helper()
	d := r.driver()
	here, further := make(chan struct{}, times), make(chan struct{})
	d.OnStep(func(step string) {
		if step == "copy: made" {
			here <- struct{}{}
			<-further
		}
	})
	return here, further, r.run(d)
}

// A call may end long before its copy does. The orchestrator repeats it.
func TestCopy_OutlivesItsCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	reached, goOn, _ := r.held(2)
	id := r.create(ext4, "pg")
	for name, call := range map[string]func(context.Context) error{
		"snapshot": func(ctx context.Context) error {
			_, err := r.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "nightly", SourceVolumeId: id})
			return err
		},
		"clone": func(ctx context.Context) error {
			q := ext4.createRequest("cloned")
			q.VolumeContentSource = contentOf(&record.Source{Volume: id})
			_, err := r.CreateVolume(ctx, q)
			return err
		},
	} {
		impatient, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- call(impatient) }()
		<-reached
		cancel()
		must(t, name+" by somebody who does not wait", <-ended, codes.Canceled)
		must(t, "stage what is copied", r.stage(id, r.staging("pg"), ext4.capability()), codes.Aborted)

		go func() { ended <- call(t.Context()) }()
		goOn <- struct{}{}
		must(t, "the repeated "+name, <-ended, codes.OK)
		must(t, "and once more", call(t.Context()), codes.OK)
	}
	for _, id := range []string{id, idOf("cloned")} {
		must(t, "delete", r.remove(id), codes.OK)
	}
	must(t, "delete snapshot", r.dropSnapshot(idOf("nightly")), codes.OK)
}

func TestCopy_StopsWithTheDriverAndStartsOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	reached, goOn, stop := r.held(2)
	id := r.create(ext4, "pg")
	must(t, "stage", r.stage(id, r.staging("pg"), ext4.capability()), codes.OK)
	write(t, filepath.Join(r.staging("pg"), "file"), "data")
	must(t, "unstage", r.unstage(id, r.staging("pg")), codes.OK)

	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	q := ext4.createRequest("cloned")
	q.VolumeContentSource = contentOf(&record.Source{Volume: id})
	_, err := r.CreateVolume(brief, q)
	if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.Aborted {
		t.Fatalf("clone: %v, want that it takes longer", err)
	}
	<-reached
	close(goOn)
	stop()

	r.start()
	waitFor(t, "the copy to be made", func() bool { return len(r.listed()) == 2 })
	must(t, "stage the copy", r.stage(idOf("cloned"), r.staging("cloned"), ext4.capability()), codes.OK)
	wantFile(t, filepath.Join(r.staging("cloned"), "file"), "data")
	r.tearDown(idOf("cloned"), r.staging("cloned"))
	must(t, "delete", r.remove(id), codes.OK)
}
