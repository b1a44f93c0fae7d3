package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// secretHash is what the servers keep of a node's secret.
func secretHash(r *request) string {
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || secret == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// authenticate checks that the caller has the secret of the node that it names.
func (h *Handler) authenticate(r *request, node api.NodeID) error {
	hash := secretHash(r)
	if hash == "" {
		return api.Errorf(api.CodeForbidden, "the request carries no node secret")
	}
	id := h.Log.View().Identity(node)
	if id == nil {
		return api.Errorf(api.CodeStaleSession, "node %s is not registered", node)
	}
	if subtle.ConstantTimeCompare([]byte(id.SecretHash), []byte(hash)) != 1 {
		return api.Errorf(api.CodeForbidden, "node %s is registered with another secret", node)
	}
	return nil
}

func (h *Handler) register(r *request) (any, error) {
	var reg api.Registration
	if err := r.decode(&reg); err != nil {
		return nil, err
	}
	v := h.Log.View()
	cluster := v.Cluster()
	if cluster == nil {
		return nil, api.Errorf(api.CodeUnavailable, "the cluster has no id yet")
	}
	if err := checkCluster(cluster, reg.ClusterID, reg.FeatureLevel); err != nil {
		return nil, err
	}
	if id := v.Identity(reg.NodeID); id != nil {
		if err := h.authenticate(r, reg.NodeID); err != nil {
			return nil, err
		}
	}
	if err := h.notRolledBack(r, v, cluster, &reg); err != nil {
		return nil, err
	}
	other := h.otherLive(v, &reg)
	if _, err := h.propose(r, &command.RegisterNode{
		NodeID: reg.NodeID, Name: reg.Name, SecretHash: secretHash(r),
		Session: reg.Session, Known: reg.Known, BootID: reg.BootID, Version: reg.Version,
		Drivers: reg.Drivers, Profile: reg.Profile, Generation: reg.Generation, Epoch: reg.Epoch, OtherLive: other,
	}); err != nil {
		return nil, err
	}
	h.Contacts.Seen(reg.NodeID, reg.Session)
	v = h.Log.View()
	cluster = v.Cluster()
	id := v.Identity(reg.NodeID)
	return api.Registered{
		ClusterID: cluster.ID, Generation: cluster.Generation,
		Epoch: id.Epoch, Sequence: id.Sequence, Index: v.Index(),
	}, nil
}

// otherLive reports whether another agent with this identity is in contact. An
// agent that was restarted knows the last session and runs in the same boot of
// its machine, so the other is the one that ended. One that knows the session on
// another machine, or after a reboot, may be a copy: it has to wait for the
// other to fall silent.
func (h *Handler) otherLive(v state.View, reg *api.Registration) bool {
	id, node := v.Identity(reg.NodeID), v.Node(reg.NodeID)
	if id == nil || id.Session == reg.Session {
		return false
	}
	restarted := slices.Contains(reg.Known, id.Session) && node != nil && node.Status.BootID == reg.BootID
	return !restarted && h.Contacts.Live(reg.NodeID, id.Session)
}

// checkCluster refuses an agent of another cluster, before anything that it
// says is believed.
func checkCluster(cluster *api.Cluster, pinned string, level int) error {
	if pinned != "" && pinned != cluster.ID {
		return api.Errorf(api.CodeWrongCluster,
			"this is cluster %s, and the agent belongs to cluster %s: either it talks to the wrong servers, or these servers have lost their state; restore a backup of it", cluster.ID, pinned)
	}
	if level < cluster.FeatureLevel {
		return api.Errorf(api.CodeForbidden, "the cluster is at feature level %d, and the agent knows level %d: upgrade it", cluster.FeatureLevel, level)
	}
	return nil
}

// notRolledBack compares what an agent has seen with what the log reaches. An
// agent that has seen more proves that the servers' files were put back to an
// older copy: a new generation begins. One that has pinned no cluster has seen
// nothing of this one.
func (h *Handler) notRolledBack(r *request, v state.View, cluster *api.Cluster, reg *api.Registration) error {
	now := cluster.Generation.Number
	if reg.ClusterID == "" || reg.Generation < now || reg.Generation == now && reg.Index <= v.Index() {
		return nil
	}
	reason := fmt.Sprintf("node %s had seen index %d of generation %d, and the servers only reach index %d of generation %d",
		reg.NodeID, reg.Index, reg.Generation, v.Index(), now)
	_, err := h.propose(r, &command.BeginGeneration{Number: max(reg.Generation, now) + 1, Reason: reason})
	if err != nil && api.CodeOf(err) != api.CodeConflict {
		return err
	}
	h.out.Error("the servers' state is older than what an agent has seen: a new generation begins", "node", reg.NodeID, "reason", reason)
	return nil
}

func (h *Handler) report(r *request) (any, error) {
	var rep api.Report
	if err := r.decode(&rep); err != nil {
		return nil, err
	}
	if err := h.authenticate(r, rep.NodeID); err != nil {
		return nil, err
	}
	index, err := h.propose(r, &command.ReportFacts{Report: rep})
	if err != nil {
		return nil, err
	}
	h.Contacts.Seen(rep.NodeID, rep.Session)
	return api.Reported{Index: index}, nil
}

// assignments is the long poll of an agent.
func (h *Handler) assignments(r *request) (any, error) {
	node := api.NodeID(r.Header.Get(api.HeaderNode))
	session := r.Header.Get(api.HeaderSession)
	epoch, err := headerNumber(r, api.HeaderEpoch)
	if err != nil {
		return nil, err
	}
	if err := h.authenticate(r, node); err != nil {
		return nil, err
	}
	return h.poll(r, node, session, epoch)
}
