package localdriver_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
)

func TestValidate_ConfirmsOnlyWhatIsOffered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id := r.create(ext4, "pg")
	ask := func(id string, list ...*csi.VolumeCapability) (*csi.ValidateVolumeCapabilitiesResponse, error) {
		return r.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: list})
	}
	good, err := ask(id, capability(writer, ""), capability(multiWriter, "ext4"))
	must(t, "validate", err, codes.OK)
	if len(good.GetConfirmed().GetVolumeCapabilities()) != 2 {
		t.Errorf("confirmed %v, want both", good.GetConfirmed())
	}
	for _, c := range []*csi.VolumeCapability{
		capability(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, ""), capability(writer, "xfs"), block(),
	} {
		bad, err := ask(id, capability(writer, ""), c)
		must(t, "validate", err, codes.OK)
		if bad.GetConfirmed() != nil || bad.GetMessage() == "" {
			t.Errorf("%v is confirmed, or nothing says why not: %v", c, bad)
		}
	}
	_, err = ask("fake", capability(writer, ""))
	must(t, "validate of nothing", err, codes.NotFound)
	_, err = ask(id)
	must(t, "validate without capabilities", err, codes.InvalidArgument)
}

func TestList_PagesThroughAllVolumes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	want := map[string]bool{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		want[r.create(directory, name)] = true
	}
	got := map[string]bool{}
	token, pages := "", 1
	for ; ; pages++ {
		page, err := r.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: 2, StartingToken: token})
		must(t, "list", err, codes.OK)
		for _, e := range page.GetEntries() {
			got[e.GetVolume().GetVolumeId()] = true
		}
		token = page.GetNextToken()
		if token == "" {
			break
		}
		// The page goes on even if its first volume is deleted meanwhile.
		if pages == 1 {
			next := token + "@" + nodeID
			must(t, "delete", r.remove(next), codes.OK)
			delete(want, next)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || pages != 2 {
		t.Errorf("%d pages, volumes (-want +got):\n%s", pages, diff)
	}
	_, err := r.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: "strange"})
	must(t, "list from a strange token", err, codes.Aborted)
	_, err = r.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: -1})
	must(t, "list of a negative number", err, codes.InvalidArgument)
}

func TestCapacity_IsWhatTheDiskHasLeftForThis(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	ask := func(q *csi.GetCapacityRequest) *csi.GetCapacityResponse {
		t.Helper()
		response, err := r.GetCapacity(t.Context(), q)
		must(t, "capacity", err, codes.OK)
		return response
	}
	if got := ask(&csi.GetCapacityRequest{}); got.GetAvailableCapacity() <= 0 || got.GetMinimumVolumeSize().GetValue() != 4*mib {
		t.Errorf("capacity %v", got)
	}
	q := &csi.GetCapacityRequest{VolumeCapabilities: []*csi.VolumeCapability{capability(writer, "xfs")}}
	if got := ask(q); got.GetAvailableCapacity() <= 0 || got.GetMinimumVolumeSize().GetValue() != 300*mib {
		t.Errorf("capacity for xfs %v", got)
	}
	q = &csi.GetCapacityRequest{VolumeCapabilities: []*csi.VolumeCapability{block()}}
	if got := ask(q); got.GetAvailableCapacity() <= 0 || got.GetMinimumVolumeSize().GetValue() != 512 {
		t.Errorf("capacity for block %v", got)
	}
	q = &csi.GetCapacityRequest{AccessibleTopology: &csi.Topology{Segments: map[string]string{"local.berth.dev/node": "db-2"}}}
	if got := ask(q); got.GetAvailableCapacity() != 0 {
		t.Errorf("capacity on another node %v, want none", got)
	}
	_, err := r.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{"a": "b"}})
	must(t, "capacity with parameters", err, codes.InvalidArgument)
}

func TestCalls_SecondOneForAVolumeIsAborted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.driver()
	reached, goOn := make(chan struct{}), make(chan struct{})
	d.OnStep(func(step string) {
		if step == "stage: recorded" {
			close(reached)
			<-goOn
		}
	})
	r.run(d)
	id, other := r.create(directory, "pg"), r.create(directory, "other")
	staging := r.staging("pg")
	staged := make(chan error)
	go func() { staged <- r.stage(id, staging, capability(writer, "")) }()
	<-reached
	must(t, "create", create(r, "pg"), codes.Aborted)
	must(t, "stage", r.stage(id, staging, capability(writer, "")), codes.Aborted)
	must(t, "publish", r.publish(id, staging, r.target("pg"), false, capability(writer, "")), codes.Aborted)
	must(t, "unpublish", r.unpublish(id, r.target("pg")), codes.Aborted)
	must(t, "unstage", r.unstage(id, staging), codes.Aborted)
	must(t, "delete", r.remove(id), codes.Aborted)
	must(t, "delete of another volume", r.remove(other), codes.OK)
	close(goOn)
	if err := <-staged; err != nil {
		t.Fatal(err)
	}
	r.tearDown(id, staging)
}

func create(r *rig, name string) error {
	_, err := r.CreateVolume(r.t.Context(), directory.createRequest(name))
	return err
}
