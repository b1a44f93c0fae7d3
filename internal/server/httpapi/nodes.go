package httpapi

import (
	"maps"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

func (h *Handler) listNodes(r *request) (any, error) {
	return h.block(r, func(v state.View) (any, uint64, error) {
		at := v.NodesIndex()
		return collect(v.Quiet().Nodes()), at, nil
	})
}

func (h *Handler) getNode(r *request) (any, error) {
	return h.block(r, func(v state.View) (any, uint64, error) {
		n := v.Node(api.NodeID(r.PathValue("id")))
		if n == nil {
			return nil, 0, noSuch("node", r.PathValue("id"), "")
		}
		q := v.Quiet()
		info := api.NodeInfo{Node: n, Instances: collect(v.NodeInstances(n.ID)), Allocations: collect(v.NodeAllocations(n.ID))}
		return info, max(q.NodesIndex(), q.InstancesIndex(), q.AllocationsIndex()), nil
	})
}

func (h *Handler) listPlugins(r *request) (any, error) {
	return h.block(r, func(v state.View) (any, uint64, error) {
		at := v.InstancesIndex()
		byID := map[api.PluginID][]*api.Instance{}
		for i := range v.Quiet().Instances("") {
			byID[i.PluginID] = append(byID[i.PluginID], i)
		}
		all := []*api.Plugin{}
		for _, id := range slices.Sorted(maps.Keys(byID)) {
			p := plugin(id, byID[id])
			p.Instances = nil
			all = append(all, p)
		}
		return all, at, nil
	})
}

func (h *Handler) getPlugin(r *request) (any, error) {
	id := api.PluginID(r.PathValue("id"))
	return h.block(r, func(v state.View) (any, uint64, error) {
		instances := collect(v.Instances(id))
		if id == "" || len(instances) == 0 {
			return nil, 0, noSuch("plugin", string(id), "")
		}
		return plugin(id, instances), v.Quiet().InstancesIndex(), nil
	})
}

// plugin computes a plugin from its instances.
func plugin(id api.PluginID, instances []*api.Instance) *api.Plugin {
	p := &api.Plugin{ID: id, Instances: instances}
	for _, i := range instances {
		if i.Driver != "" {
			p.Driver = i.Driver
		}
		if i.VendorVersion != "" && !slices.Contains(p.VendorVersions, i.VendorVersion) {
			p.VendorVersions = append(p.VendorVersions, i.VendorVersion)
		}
		if i.ServesController() {
			p.ControllersExpected++
			p.ControllersHealthy += one(i.Healthy)
		}
		if i.ServesNode() {
			p.NodesExpected++
			p.NodesHealthy += one(i.Healthy)
		}
	}
	return p
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
