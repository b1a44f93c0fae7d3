package state_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// fleet is a store with so many volumes, each as large as a real one.
func fleet(tb testing.TB, volumes int) *state.Store {
	tb.Helper()
	store, err := state.New()
	if err != nil {
		tb.Fatal(err)
	}
	const perCommit = 1000
	for first := 0; first < volumes; first += perCommit {
		commit(store, uint64(first/perCommit+1), func(tx *state.Tx) {
			for n := first; n < min(first+perCommit, volumes); n++ {
				tx.PutVolume(volumeNumber(n))
			}
		})
	}
	return store
}

func volumeNumber(n int) *api.Volume {
	return &api.Volume{
		Namespace: api.DefaultNamespace, ID: api.VolumeID(fmt.Sprintf("data-%06d", n)),
		UID: fmt.Sprintf("01234567-89ab-cdef-0123-%012d", n), Desired: api.Present,
		Spec: api.VolumeSpec{
			PluginID: "local", CapacityMin: 1 << 30,
			Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}},
			MountOptions: &api.MountOptions{FSType: "ext4", MountFlags: []string{"noatime"}},
			Parameters:   map[string]string{"type": "image"},
		},
		Status: api.VolumeStatus{
			State: api.VolumeReady, ExternalID: fmt.Sprintf("vol-%012d", n), Capacity: 1 << 30,
			Context:            map[string]string{"type": "image"},
			AccessibleTopology: []api.Topology{{"berth.dev/node": fmt.Sprintf("n%d", n%100)}},
		},
	}
}

func BenchmarkSave(b *testing.B) {
	const volumes = 100_000
	b.Run(fmt.Sprintf("volumes=%d", volumes), func(b *testing.B) {
		v := fleet(b, volumes).View()
		for b.Loop() {
			if err := v.Save(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	const volumes = 100_000
	b.Run(fmt.Sprintf("volumes=%d", volumes), func(b *testing.B) {
		var saved bytes.Buffer
		if err := fleet(b, volumes).View().Save(&saved); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := state.Load(bytes.NewReader(saved.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkCommit measures commits of new volumes into a store of many.
func BenchmarkCommit(b *testing.B) {
	for _, rows := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			store := fleet(b, 10_000)
			index, n := uint64(1000), 10_000
			for b.Loop() {
				index++
				tx := store.Begin(index, statetest.Now())
				for range rows {
					tx.PutVolume(volumeNumber(n))
					n++
				}
				tx.Commit()
			}
			b.ReportMetric(float64(b.N*rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
