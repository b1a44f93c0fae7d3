package httpapi

import (
	"net/http"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

func (h *Handler) status(*request) (any, error) {
	leader, _ := h.Log.Leader()
	s := api.Status{ServerID: h.ServerID, Leader: leader, Version: h.Version, Counters: h.Counters()}
	if !h.Log.Ready() {
		return s, nil
	}
	v := h.Log.View()
	s.Index = v.Index()
	if c := v.Cluster(); c != nil {
		s.ClusterID, s.FeatureLevel, s.Generation = c.ID, c.FeatureLevel, c.Generation
	}
	for n := range v.Nodes() {
		s.Nodes++
		s.NodesReady += one(n.Status.State == api.NodeReady)
	}
	for vol := range v.Volumes("") {
		s.Volumes++
		s.VolumesFailed += one(vol.Status.State == api.VolumeFailed)
	}
	for job := range v.Jobs("") {
		s.Jobs++
		// Only what ends can fail for good.
		s.JobsFailed += one(job.Spec.Type.Ends() && jobState(job, collect(v.LiveAllocations(job.UID))) == api.JobFailed)
	}
	for snapshot := range v.Snapshots("") {
		s.Snapshots++
		s.SnapshotsFailed += one(snapshot.Status.State == api.SnapshotFailed)
	}
	s.Waits = h.Explain.Everything(v)
	return s, nil
}

func (h *Handler) getCluster(r *request) (any, error) {
	return h.block(r, func(v state.View) (any, uint64, error) {
		c := v.Cluster()
		if c == nil {
			return nil, 0, api.Errorf(api.CodeUnavailable, "the cluster has no id yet")
		}
		return c, c.ModifyIndex, nil
	})
}

// saveSnapshot streams the whole state.
func (h *Handler) saveSnapshot(r *request) (any, error) {
	r.w.Header().Set("Content-Type", octets)
	r.streamed, r.begun = true, true
	to := r.paced()
	defer to.done()
	if err := h.Log.Save(to); err != nil {
		// The status is on its way already: only a cut stream can tell.
		panic(http.ErrAbortHandler)
	}
	return nil, nil
}

func (h *Handler) restoreSnapshot(r *request) (any, error) {
	if err := h.Log.Restore(r.Context(), r.paced()); err != nil {
		return nil, err
	}
	return h.recovery(r)
}

func (h *Handler) recovery(*request) (any, error) { return recoveryOf(h.Log.View()), nil }

func recoveryOf(v state.View) api.Recovery {
	var rec api.Recovery
	c := v.Cluster()
	if c == nil {
		return rec
	}
	rec.Generation = c.Generation
	for n := range v.Nodes() {
		if c.Generation.Recovering && n.Status.Generation < c.Generation.Number {
			rec.Missing = append(rec.Missing, n.ID)
		}
	}
	for id := range command.Clearing(v) {
		rec.Clearing = append(rec.Clearing, id)
	}
	return rec
}

func (h *Handler) confirmRecovery(r *request) (any, error) {
	var body api.RecoveryConfirmation
	if err := r.decode(&body); err != nil {
		return nil, err
	}
	if _, err := h.propose(r, &command.ConfirmGeneration{Number: body.Number, Force: body.Force}); err != nil {
		return nil, err
	}
	return h.recovery(r)
}

// serveMetrics answers in the formats that Prometheus reads.
func (h *Handler) serveMetrics(r *request) (any, error) {
	if h.metrics == nil {
		return nil, api.Errorf(api.CodeNotFound, "this server measures nothing")
	}
	r.streamed, r.begun = true, true
	h.metrics.ServeHTTP(r.w, r.Request)
	return nil, nil
}

// collectGarbage removes what has ended.
func (h *Handler) collectGarbage(r *request) (any, error) {
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	if err := r.decode(&struct{}{}); err != nil {
		return nil, err
	}
	return h.Rubbish.Collect(r.Context())
}
