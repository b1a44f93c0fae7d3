package csimanager_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/agent/dynamicplugins"
	"github.com/berth-dev/berth/internal/agent/mount/mounttest"
)

// While a plugin is exchanged there are two instances. The one that was started
// last is called, once it is healthy, and the other one as long as it is not.
func TestNewestHealthyInstanceIsCalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		serve := func() (*csitest.Backend, *csitest.Driver, func(), dynamicplugins.Plugin) {
			b := csitest.NewBackend(csitest.Everything())
			d := b.Node(csitest.Node{ID: "n1", Topology: map[string]string{"zone": "a"}})
			kill := d.Start(t)
			return b, d, kill, dynamicplugins.Plugin{ID: plugin, Type: api.InstanceMonolith, Dial: d.Dialer()}
		}
		old, _, _, first := serve()
		newer, newerDriver, killNewer, second := serve()
		first.AllocID, first.Since = "b", time.Now()
		time.Sleep(time.Minute)
		second.AllocID, second.Since = "a", time.Now()
		called := func() *csitest.Backend {
			t.Helper()
			before := len(newer.Calls())
			client, err := f.manager.Controller(plugin)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(newer.Calls()) > before {
				return newer
			}
			return old
		}
		newerDriver.SetStarting(true)
		f.registry.Register(first)
		f.registry.Register(second)
		synctest.Wait()
		if called() != old {
			t.Error("an instance was called that is still starting")
		}
		newerDriver.SetStarting(false)
		time.Sleep(6 * time.Second)
		if called() != newer {
			t.Error("the older instance was called, and the newer one is healthy")
		}
		killNewer()
		time.Sleep(35 * time.Second)
		if called() != old {
			t.Error("the newer instance is gone, and the older one was not called")
		}
	})
}

// An instance that answers as another driver than the others of its plugin is
// not used, and says whose name it was.
func TestAnotherDriverWithTheSameID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		_, _, first := driver(t, csitest.Options{Name: "disk.example"}, csitest.Node{})
		_, _, second := driver(t, csitest.Options{Name: "net.example"}, csitest.Node{})
		first.AllocID, second.AllocID = "alloc-1", "alloc-2"
		f.registry.Register(first)
		synctest.Wait()
		f.registry.Register(second)
		synctest.Wait()
		got := f.facts.last(t)
		const want = `it answers as driver "net.example", and plugin provider is driver "disk.example" on this node already, run by allocation alloc-1`
		if got.AllocID != "alloc-2" || got.Healthy || !strings.Contains(got.Reason, want) {
			t.Errorf("said %+v, want that it is another driver", got)
		}
		// When the first one is gone, the id is its own.
		f.registry.Deregister(first.Key())
		time.Sleep(6 * time.Second)
		if s, _ := f.manager.Instance(second.Key()); !s.Healthy {
			t.Errorf("alone, it is %+v", s)
		}
	})
}

// An instance that is taken away takes no more calls, and those on their way
// end: its task is stopped after them.
func TestEndedInstanceLetsItsCallsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		_, _, p := driver(t, csitest.Everything(), csitest.Node{})
		backend := csitest.NewBackend(csitest.Everything())
		d := backend.Node(csitest.Node{ID: "n1", Topology: map[string]string{"zone": "a"}})
		d.Start(t)
		p.Dial, p.AllocID = d.Dialer(), "alloc-1"
		f.registry.Register(p)
		synctest.Wait()
		client, err := f.manager.Controller(plugin)
		if err != nil {
			t.Fatal(err)
		}
		hang := backend.Script(csitest.Rule{Method: "Probe", Times: 1, Do: csitest.Hang()})
		ended := make(chan error, 1)
		go func() {
			_, err := client.Probe(t.Context())
			ended <- err
		}()
		synctest.Wait()
		f.registry.Deregister(p.Key())
		synctest.Wait()
		if _, err := f.manager.Controller(plugin); api.CodeOf(err) != api.CodeUnavailable {
			t.Errorf("an instance that ends was handed out: %v", err)
		}
		began := time.Now()
		drained := make(chan time.Duration, 1)
		go func() {
			f.manager.Drained(context.Background(), p.Key())
			drained <- time.Since(began)
		}()
		time.Sleep(5 * time.Second)
		hang.Release()
		if err := <-ended; err != nil {
			t.Errorf("the call on its way: %v", err)
		}
		if took := <-drained; took != 5*time.Second {
			t.Errorf("the calls had ended after %s", took)
		}
	})
}

// The mounts of a driver that serves its file systems itself go with its process.
// They are taken away and made again, also where the volume is staged.
func TestMountsThatAreGoneAreMadeAgain(t *testing.T) {
	t.Parallel()
	for name, staging := range map[string]bool{"Target": false, "StagingToo": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, csitest.Options{Stage: true}, func(t testing.TB, w *world) {
				a := w.volume(wish{})
				target := w.mount(a)
				paths := []string{target}
				want := "NodeUnpublishVolume OK\nNodePublishVolume OK\n"
				if staging {
					paths = append(paths, w.mountsBelow("stage")...)
					want = "NodeUnpublishVolume OK\nNodeUnstageVolume OK\nNodeStageVolume OK\nNodePublishVolume OK\n"
				}
				if served, err := w.mounter.Served(a); err != nil || served {
					t.Errorf("a mount of the kernel's is served by a process: %t, %v", served, err)
				}
				before := w.calls()
				for _, path := range paths {
					if err := w.table.(*mounttest.Table).SetGone(path); err != nil {
						t.Fatal(err)
					}
				}
				if gone, err := w.mounter.Gone(a); err != nil || !gone {
					t.Errorf("gone: %t, %v", gone, err)
				}
				w.mount(a)
				if got := strings.TrimPrefix(w.calls(), before); got != want {
					t.Errorf("calls:\n%swant:\n%s", got, want)
				}
				if gone, err := w.mounter.Gone(a); err != nil || gone {
					t.Errorf("mounted again, gone: %t, %v", gone, err)
				}
				w.wantMounts(a)
				w.unmount(a)
				w.wantNothing()
			})
		})
	}
}
