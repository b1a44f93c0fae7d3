package httpapi

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// services are computed from the jobs that name them: there are no rows of them.
func services() listing[api.ServiceInfo] {
	return listing[api.ServiceInfo]{
		modified: func(v state.View) uint64 { return max(v.JobsIndex(), v.AllocationsIndex(), v.NodesIndex()) },
		rows: func(v state.View, s scope) iter.Seq2[state.Key, api.ServiceInfo] {
			return func(yield func(state.Key, api.ServiceInfo) bool) {
				for k := range v.Services(s.from) {
					parts := k.Split()
					ns, name := api.NamespaceID(parts[0]), parts[1]
					if s.namespace != "" && ns != s.namespace || !strings.HasPrefix(name, s.prefix) {
						continue
					}
					if info, found := service(v, ns, name); found && !yield(k, info) {
						return
					}
				}
			}
		},
	}
}

func (h *Handler) getService(r *request) (any, error) {
	name, ns := r.PathValue("name"), api.NamespaceID(cmp.Or(r.query.Get("namespace"), string(api.DefaultNamespace)))
	all, err := r.flag("all")
	if err != nil {
		return nil, err
	}
	return h.block(r, func(v state.View) (any, uint64, error) {
		at := max(v.JobsIndex(), v.AllocationsIndex(), v.NodesIndex())
		q := v.Quiet()
		info, found := service(q, ns, name)
		if !found {
			return nil, 0, noSuch("service", name, ns)
		}
		if !all {
			offered := len(info.Instances)
			info.Instances = slices.DeleteFunc(info.Instances, func(i api.ServiceInstance) bool { return !i.Healthy })
			info.Unhealthy = offered - len(info.Instances)
		}
		return info, at, nil
	})
}

// service finds the allocations that offer a service, and reports whether any
// job names it.
func service(v state.View, ns api.NamespaceID, name string) (info api.ServiceInfo, found bool) {
	info = api.ServiceInfo{Namespace: ns, Name: name, Instances: []api.ServiceInstance{}}
	for job := range v.JobsWithService(ns, name) {
		found = true
		for a := range v.LiveAllocations(job.UID) {
			if i := instance(v, a, name); i != nil {
				info.Instances = append(info.Instances, *i)
			}
		}
	}
	slices.SortFunc(info.Instances, func(a, b api.ServiceInstance) int {
		return cmp.Or(cmp.Compare(a.JobID, b.JobID), cmp.Compare(a.AllocID, b.AllocID))
	})
	return info, found
}

// instance is an allocation that offers a service, by the spec that it runs, or
// nil. One that is to end is left out before it ends.
func instance(v state.View, a *api.Allocation, name string) *api.ServiceInstance {
	rev, node := v.Revision(a.JobUID, a.Revision), v.Node(a.NodeID)
	if a.Terminal() || a.Desired == api.DesireStop || rev == nil || node == nil {
		return nil
	}
	group := rev.Spec.Group(a.Group)
	i := slices.IndexFunc(group.Services, func(s api.Service) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	s := group.Services[i]
	is := &api.ServiceInstance{
		Namespace: a.Namespace, Service: name, JobID: a.JobID, AllocID: a.ID, NodeID: a.NodeID,
		Address: node.Status.Profile.Address, Port: a.Port(s.Port), Tags: s.Tags, Status: api.CheckPassing,
	}
	if !a.Runs() {
		is.Status = api.CheckPending
	}
	for i := range s.Checks {
		c := api.CheckStatus{Service: name, Name: s.Checks[i].Name, Status: api.CheckPending}
		if known := a.Status.Check(name, c.Name); known != nil {
			c = *known
		}
		is.Checks = append(is.Checks, c)
		if c.Status == api.CheckCritical || c.Status == api.CheckPending && is.Status == api.CheckPassing {
			is.Status = c.Status
		}
	}
	if node.Status.State != api.NodeReady {
		is.Status = api.CheckCritical
	}
	is.Healthy = is.Status == api.CheckPassing
	return is
}
