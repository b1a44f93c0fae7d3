package server

import (
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/controller/scheduler"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/telemetry"
)

// three are the labels of a number.
type three [3]string

// measureWaiting adds what shows whether anything is stuck: the operations that
// are open, how long they wait, and how long attachments are in their states.
// Only the server that leads does.
func (s *Server) measureWaiting(r *telemetry.Registry) {
	gauge := func(name, help string, labels []string, numbers func(state.View, time.Time) map[three]float64) {
		r.Read(telemetry.Metric{Name: name, Kind: telemetry.Gauge, Labels: labels, Help: help + "; only of the server that leads"},
			func(emit telemetry.Emit) {
				if !s.consensus.Ready() {
					return
				}
				for values, n := range numbers(s.store.View(), s.consensus.Now()) {
					emit(n, values[:len(labels)]...)
				}
			})
	}
	gauge("berth_operations", "Operations by plugin, kind and state; ended ones until they are collected", []string{"plugin", "kind", "state"},
		func(v state.View, _ time.Time) map[three]float64 {
			n := map[three]float64{}
			for op := range v.Operations() {
				n[three{string(op.PluginID), string(op.Kind), string(op.Status.State)}]++
			}
			return n
		})
	gauge("berth_operations_queued", "Operations that could be tried now, and wait for an agent or for their turn", []string{"plugin", "kind"},
		func(v state.View, now time.Time) map[three]float64 {
			n := map[three]float64{}
			for plugin := range v.WaitingPlugins() {
				for op := range v.Queue(plugin, now) {
					n[three{string(plugin), string(op.Kind)}]++
				}
			}
			return n
		})
	gauge("berth_operations_oldest_seconds", "Age of the oldest operation that has not ended", []string{"plugin", "kind"},
		func(v state.View, now time.Time) map[three]float64 {
			oldest := map[three]float64{}
			eachOpen(v, func(op *api.Operation) {
				k := three{string(op.PluginID), string(op.Kind)}
				oldest[k] = max(oldest[k], now.Sub(op.CreateTime).Seconds())
			})
			return oldest
		})
	gauge("berth_operations_uncertain", "Operations that have not ended, and of which nobody knows whether they had their effect", []string{"plugin", "kind"},
		func(v state.View, _ time.Time) map[three]float64 {
			n := map[three]float64{}
			eachOpen(v, func(op *api.Operation) {
				if op.Status.Uncertain {
					n[three{string(op.PluginID), string(op.Kind)}]++
				}
			})
			return n
		})
	gauge("berth_attachments_oldest_seconds", "How long the attachment that has been in its state for longest has been", []string{"plugin", "state"},
		func(v state.View, now time.Time) map[three]float64 {
			oldest := map[three]float64{}
			for _, a := range state.Attachments().From(v, nil) {
				if !a.Holds() {
					continue
				}
				k := three{string(a.PluginID), string(a.Status.State)}
				oldest[k] = max(oldest[k], now.Sub(since(a)).Seconds())
			}
			return oldest
		})
	gauge("berth_places_waiting", "Empty places of jobs that want volumes of the plugin, whatever keeps them empty", []string{"plugin"},
		func(v state.View, _ time.Time) map[three]float64 {
			n := map[three]float64{}
			eachEmpty(v, func(plugin api.PluginID, _ *api.Job) { n[three{string(plugin)}]++ })
			return n
		})
	gauge("berth_places_oldest_seconds", "For how long the job has waited that has waited longest, of those with such places", []string{"plugin"},
		func(v state.View, now time.Time) map[three]float64 {
			oldest := map[three]float64{}
			eachEmpty(v, func(plugin api.PluginID, job *api.Job) {
				k := three{string(plugin)}
				oldest[k] = max(oldest[k], now.Sub(job.Status.Waiting).Seconds())
			})
			return oldest
		})
}

// eachEmpty calls f for each empty place of a job, once for each plugin that it
// wants volumes of. Of a volume that is not there nobody knows the plugin.
func eachEmpty(v state.View, f func(api.PluginID, *api.Job)) {
	type wanted struct {
		slot   string
		plugin api.PluginID
	}
	for job := range v.UnsettledJobs() {
		seen := map[wanted]bool{}
		for slot, id := range scheduler.Empty(v, job) {
			w := wanted{slot: slot}
			if vol := v.Volume(job.Namespace, id); vol != nil {
				w.plugin = vol.Spec.PluginID
			}
			if !seen[w] {
				seen[w] = true
				f(w.plugin, job)
			}
		}
	}
}

// eachOpen calls f for the operations that have not ended.
func eachOpen(v state.View, f func(*api.Operation)) {
	for op := range v.OpenOperations("", "") {
		f(op)
	}
}

// since is when an attachment came into its state.
func since(a *api.Attachment) time.Time {
	if n := len(a.Status.Steps); n > 0 && a.Status.Steps[n-1].State == a.Status.State {
		return a.Status.Steps[n-1].Time
	}
	return a.ModifyTime
}
