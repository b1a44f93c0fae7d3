package integration_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/test/host"
)

// soak is a machine whose allocations are started and stopped at random while
// its agent is killed at random.
type soak struct {
	*machine
	metrics string
	count   int // of jobs with volumes
	length  time.Duration
	random  *rand.Rand // of who holds mu
	mu      sync.Mutex
}

// visitorsSleep is what some visitors of tasks run, and nobody else: no name of a
// directory, which may have any digits, has a fraction.
const visitorsSleep = "86397.25"

// steady is a job that runs from the beginning to the end, whose task is visited
// more than others.
const steady = "steady"

// TestSoak starts and stops allocations with volumes at random, some of them
// given to a group and some that live with their allocation, runs commands in
// their tasks, and kills the agent at random. Afterwards nothing is left; agent,
// server and the supervisor of a task that ran all the time have no more
// goroutines and files than at the beginning, and no more memory than what they
// remember takes. BERTH_SOAK_MINUTES makes it long: then with 200 allocations.
func TestSoak(t *testing.T) {
	t.Parallel()
	s := &soak{metrics: host.FreeAddress(t), count: 40, length: 20 * time.Second}
	if text := os.Getenv("BERTH_SOAK_MINUTES"); text != "" {
		minutes, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		s.count, s.length = 200, time.Duration(minutes*float64(time.Minute))
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s.random = rand.New(rand.NewPCG(seed, 0))
	s.machine = newMachine(t, host.Options{
		Apart: true, Config: fmt.Sprintf("telemetry {\n metrics_address = %q\n}\n", s.metrics),
	})
	for i := range s.count {
		s.volume(i)
	}
	s.submitSteady()
	s.settled("before", 0)
	before, served, supervised := s.vitals(), s.serverVitals(), s.supervisorVitals()
	ended := make(chan struct{})
	time.AfterFunc(s.length, func() { close(ended) })
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() { s.work(w, ended) })
	}
	visits := 0
	workers.Go(func() { visits = s.visit(ended) })
	kills := s.kill(ended)
	workers.Wait()
	s.stopAll()
	started := s.started()
	t.Logf("%d agents killed, %d commands run in tasks", kills, visits)
	const connections = 12 // a few more or less are no growth
	s.grows("the agent", before, connections, started, func() (host.Vitals, error) { return s.berth.Vitals(s.metrics) })
	s.grows("the server", served, connections, started, s.berth.ServerVitals)
	s.grows("the supervisor", supervised, connections/4, 0, func() (host.Vitals, error) { return s.berth.SupervisorVitals(steady) })
	s.stop(steady)
	s.jobs = 0
	s.settled("without the steady job", 0)
	s.berth.Eventually("supervisors that waited for a task of an agent that was killed are gone", limit, orphans)
	mounts, loops, procs := s.leaks()
	fmt.Printf("started %d leaked_mounts %d leaked_loops %d leaked_procs %d\n", started, len(mounts), len(loops), len(procs))
	if len(mounts)+len(loops)+len(procs) > 0 {
		t.Errorf("left behind: mounts %q, loop devices %q, processes %q", mounts, loops, procs)
	}
	for i := range s.count {
		if err := s.client.DeleteVolume(t.Context(), api.DefaultNamespace, s.name(i), 0); err != nil {
			t.Error(err)
		}
	}
	for i := range s.count {
		until(t, "volume "+string(s.name(i))+" gone", s.lookUp(i), func(v *api.VolumeInfo) bool { return v.Volume == nil })
	}
	until(t, "all volumes gone that lived with their allocation", func(ctx context.Context, q client.Query) ([]*api.Volume, uint64, error) {
		return s.client.Volumes(ctx, q)
	}, func(all *[]*api.Volume) bool { return len(*all) == 0 })
}

// submitSteady submits the steady job.
func (s *soak) submitSteady() {
	s.tb.Helper()
	job := sleeper()
	job.Groups[0].Tasks[0].Name = steady
	if _, err := s.client.ApplyJob(s.tb.Context(), api.DefaultNamespace, steady, job, 0); err != nil {
		s.tb.Fatal(err)
	}
	s.jobs++
	s.untilRunning(steady)
}

// orphans answers an error while a supervisor waits for a task that no agent can
// send.
func orphans() error {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(line), "\x00executor\x00(waits for a task)") {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil {
			continue // it has just ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if fields[1] == "1" {
			return fmt.Errorf("process %s has no agent", filepath.Base(filepath.Dir(path)))
		}
	}
	return nil
}

// lookUp reads a volume, and answers none where there is none.
func (s *soak) lookUp(i int) func(context.Context, client.Query) (api.VolumeInfo, uint64, error) {
	return func(ctx context.Context, q client.Query) (api.VolumeInfo, uint64, error) {
		v, at, err := s.client.Volume(ctx, api.DefaultNamespace, s.name(i), q)
		if api.CodeOf(err) == api.CodeNotFound {
			return api.VolumeInfo{}, at, nil
		}
		return v, at, err
	}
}

func (*soak) name(i int) api.VolumeID { return api.VolumeID(fmt.Sprintf("v%d", i)) }

// volume makes a volume: one in four is a file system on a loop device.
func (s *soak) volume(i int) {
	s.tb.Helper()
	spec := api.VolumeSpec{
		PluginID:     "disk",
		Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}},
	}
	if i%4 == 0 {
		spec.CapacityMin = 16 << 20
	}
	if _, err := s.client.ApplyVolume(s.tb.Context(), api.DefaultNamespace, s.name(i), spec, 0); err != nil {
		s.tb.Fatal(err)
	}
}

func (s *soak) pick(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

// work starts and stops its share of the jobs until the end. It waits for
// nothing: what was asked for last is what counts.
func (s *soak) work(worker int, ended <-chan struct{}) {
	for {
		job := api.JobID(s.name(s.pick(s.count/4)*4 + worker))
		if s.pick(2) == 0 {
			if err := s.submitAny(job); err != nil {
				s.tb.Error(err)
			}
		} else if _, err := s.client.StopJob(s.tb.Context(), api.DefaultNamespace, job, 0); err != nil && api.CodeOf(err) != api.CodeNotFound {
			s.tb.Error(err)
		}
		pause := time.NewTimer(time.Duration(s.pick(400)) * time.Millisecond)
		select {
		case <-pause.C:
		case <-ended:
			pause.Stop()
			return
		}
	}
}

// submitAny submits a job with the volume of its name, given to a group or not, or
// with one that lives with its allocation.
func (s *soak) submitAny(id api.JobID) error {
	job := sleeper(api.VolumeID(id))
	r := &job.Groups[0].Volumes[0]
	if number, _ := strconv.Atoi(string(id[1:])); number%8 == 5 {
		r.Source, r.Ephemeral = "", &api.EphemeralVolume{PluginID: "disk", CapacityMin: int64(number%16) << 20}
	}
	switch s.pick(3) {
	case 0:
		r.FSGroup = 4711
	case 1:
		r.FSGroup, r.FSGroupPolicy = 4712, api.GroupAlways
	}
	_, err := s.client.ApplyJob(s.tb.Context(), api.DefaultNamespace, id, job, 0)
	return err
}

// visit runs commands in tasks until the end, and counts those that came to theirs.
// Others are left by their visitor, or end with their task or the agent.
func (s *soak) visit(ended <-chan struct{}) (visits int) {
	commands := [][]string{{"/bin/sh", "-c", "cat; exit 3"}, {"/bin/sleep", visitorsSleep}, {"/bin/sh", "-c", "sleep " + visitorsSleep + " & head -c 300000 /dev/zero"}}
	for {
		select {
		case <-ended:
			return visits
		case <-time.After(20 * time.Millisecond):
		}
		allocs, _, err := s.client.Allocations(s.tb.Context(), client.Query{})
		if err != nil {
			s.tb.Error(err)
			return visits
		}
		var running []*api.Allocation
		for _, a := range allocs {
			if a.Status.State == api.AllocRunning {
				running = append(running, a)
			}
		}
		if len(running) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(s.tb.Context(), time.Duration(100+s.pick(1000))*time.Millisecond)
		visited := running[s.pick(len(running))]
		for _, a := range running {
			if a.JobID == steady && s.pick(2) == 0 {
				visited = a
			}
		}
		task := "task"
		if visited.JobID == steady {
			task = steady
		}
		_, err = s.client.Exec(ctx, visited.ID, task, api.ExecRequest{
			Command: commands[s.pick(len(commands))], Input: true,
		}, client.ExecIO{Input: strings.NewReader("typed"), Output: io.Discard, Errors: io.Discard})
		cancel()
		if err == nil {
			visits++
		}
	}
}

// kill kills the agent until the last third of the time: what grows, grows in
// an agent that lives.
func (s *soak) kill(ended <-chan struct{}) (kills int) {
	quiet := time.After(s.length * 2 / 3)
	for {
		pause := time.NewTimer(time.Duration(500+s.pick(6000)) * time.Millisecond)
		select {
		case <-pause.C:
			kills++
			s.berth.Kill()
			s.berth.Launch()
		case <-quiet:
			pause.Stop()
			<-ended
			return kills
		}
	}
}

// stopAll ends all jobs and waits until nothing holds a volume.
func (s *soak) stopAll() {
	s.tb.Helper()
	for i := range s.count {
		if _, err := s.client.StopJob(s.tb.Context(), api.DefaultNamespace, api.JobID(s.name(i)), 0); err != nil && api.CodeOf(err) != api.CodeNotFound {
			s.tb.Error(err)
		}
	}
	for i := range s.count {
		s.untilFree(s.name(i))
	}
	s.settled("at the end", 0)
}

// vitals are the agent's at rest.
func (s *soak) vitals() (v host.Vitals) {
	s.tb.Helper()
	s.berth.Eventually("the agent's vitals", limit, func() (err error) {
		v, err = s.berth.Vitals(s.metrics)
		return err
	})
	return v
}

func (s *soak) supervisorVitals() (v host.Vitals) {
	s.tb.Helper()
	s.berth.Eventually("the supervisor's vitals", limit, func() (err error) {
		v, err = s.berth.SupervisorVitals(steady)
		return err
	})
	return v
}

func (s *soak) serverVitals() (v host.Vitals) {
	s.tb.Helper()
	s.berth.Eventually("the server's vitals", limit, func() (err error) {
		v, err = s.berth.ServerVitals()
		return err
	})
	return v
}

// grows fails if a process stays larger than it was: connections come and go, which
// is slack. What it remembers of each allocation, and what
// a garbage collector leaves for later, is memory that it may have.
func (s *soak) grows(who string, before host.Vitals, slack, started int, now func() (host.Vitals, error)) {
	s.tb.Helper()
	memory := 2*before.Memory + 64<<20 + int64(started)*(64<<10)
	var after host.Vitals
	s.berth.Eventually(who+" is no larger than before", limit, func() (err error) {
		if after, err = now(); err != nil {
			return err
		}
		if after.Goroutines > before.Goroutines+slack || after.Files > before.Files+slack || after.Memory > memory {
			return fmt.Errorf("%+v became %+v, with memory of at most %d", before, after, memory)
		}
		return nil
	})
	s.tb.Logf("%s: at first %+v, at last %+v", who, before, after)
}

// started counts the allocations whose task was ever started.
func (s *soak) started() (n int) {
	s.tb.Helper()
	allocs, _, err := s.client.Allocations(s.tb.Context(), client.Query{})
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, a := range allocs {
		if len(a.Status.Tasks) > 0 {
			n++
		}
	}
	return n
}

// leaks are what is left where nothing should be.
func (s *soak) leaks() (mounts, loops, procs []string) {
	s.tb.Helper()
	a, err := s.berth.Account(s.client, s.root)
	if err != nil {
		s.tb.Fatal(err)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		s.tb.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		at := strings.Fields(line)[4]
		if strings.HasPrefix(at, filepath.Dir(s.berth.DataDir)+"/") || strings.HasPrefix(at, filepath.Dir(s.root)+"/") {
			mounts = append(mounts, at)
		}
	}
	procs = a.Supervisors
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), visitorsSleep) {
			procs = append(procs, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return mounts, a.Loops, procs
}
