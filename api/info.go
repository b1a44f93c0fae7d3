package api

import "time"

// What the API answers beside single rows: rows that people want together.

// Status is what a server says of itself and its cluster.
type Status struct {
	ClusterID    string     `json:"cluster_id,omitempty"`
	ServerID     string     `json:"server_id"`
	Leader       string     `json:"leader,omitempty"`
	Version      string     `json:"version"`
	FeatureLevel int        `json:"feature_level"`
	Generation   Generation `json:"generation"`
	Index        uint64     `json:"index"`
	Nodes        int        `json:"nodes"`
	NodesReady   int        `json:"nodes_ready"`
	Volumes      int        `json:"volumes"`
	Jobs         int        `json:"jobs"`
	Snapshots    int        `json:"snapshots"`
	// Failed are those of them that have given up: somebody has to act.
	VolumesFailed   int `json:"volumes_failed"`
	JobsFailed      int `json:"jobs_failed"`
	SnapshotsFailed int `json:"snapshots_failed"`
	// Waits is everything that waits, and why.
	Waits []Wait `json:"waits,omitempty"`
	// Counters are the proposer's: see the operations manual.
	Counters map[string]int64 `json:"counters,omitempty"`
}

// NamespaceInfo is a namespace with how much there is in it. It is there as long
// as something names it.
type NamespaceInfo struct {
	ID        NamespaceID `json:"id"`
	Volumes   int         `json:"volumes"`
	Jobs      int         `json:"jobs"`
	Snapshots int         `json:"snapshots"`
	Variables int         `json:"variables"`
}

// VolumeInfo is a volume with everything that concerns it.
type VolumeInfo struct {
	*Volume
	Publications []*Publication `json:"publications,omitempty"`
	// Attachments are those that hold the volume.
	Attachments []*Attachment `json:"attachments,omitempty"`
	Operations  []*Operation  `json:"operations,omitempty"`
	// Snapshots are those of the volume, by id.
	Snapshots []*Snapshot `json:"snapshots,omitempty"`
	// Findings are what differs between the plugin's word of it and the state's.
	Findings []*Finding `json:"findings,omitempty"`
	Waits    []Wait     `json:"waits,omitempty"`
	// Queue is the jobs that wait for the volume, in the order in which they get
	// it.
	Queue []QueuedJob `json:"queue,omitempty"`
	// Warnings come with the answer to a write.
	Warnings []Field `json:"warnings,omitempty"`
}

// QueuedJob is a job that has empty places and wants a volume for them.
type QueuedJob struct {
	JobID JobID `json:"job_id"`
	// Priority comes first in the order, and Since, from when the job has waited,
	// second.
	Priority int       `json:"priority"`
	Since    time.Time `json:"since,omitzero"`
	// Places are the empty ones, and why they are. They are told of the first
	// eight jobs only.
	Places []Wait `json:"places,omitempty"`
}

// JobState sums up a job.
type JobState string

// The job states.
const (
	JobPending  JobState = "pending"  // something is still to be placed or to run
	JobRunning  JobState = "running"  // all that is wanted runs
	JobStopping JobState = "stopping" // it was stopped, and something still runs
	JobStopped  JobState = "stopped"  // it was stopped
	JobComplete JobState = "complete" // a batch job that is done
	JobFailed   JobState = "failed"   // a batch job that has given up
)

// JobInfo is a job with its allocations.
type JobInfo struct {
	*Job
	State JobState `json:"state"`
	// Healthy is in how many places of a service or system job an allocation is
	// healthy. Lists do not say.
	Healthy     int           `json:"healthy,omitempty"`
	Allocations []*Allocation `json:"allocations,omitempty"`
	Waits       []Wait        `json:"waits,omitempty"`
	// Warnings come with the answer to a write.
	Warnings []Field `json:"warnings,omitempty"`
}

// AllocationInfo is an allocation with its attachments.
type AllocationInfo struct {
	*Allocation
	// Address is its node's, where its ports are reached.
	Address     string        `json:"address,omitempty"`
	Attachments []*Attachment `json:"attachments,omitempty"`
	Waits       []Wait        `json:"waits,omitempty"`
}

// NodeInfo is a node with what it runs.
type NodeInfo struct {
	*Node
	Instances   []*Instance   `json:"instances,omitempty"`
	Allocations []*Allocation `json:"allocations,omitempty"`
	// Publications are the volumes that are on the node, of all namespaces.
	Publications []*Publication `json:"publications,omitempty"`
	// Waits are what its drain waits for.
	Waits []Wait `json:"waits,omitempty"`
}

// Collected is how much history was removed.
type Collected struct {
	Operations  int `json:"operations"`
	Attachments int `json:"attachments"`
	Allocations int `json:"allocations"`
	Jobs        int `json:"jobs"`
	// Snapshots are those that were never made, Nodes those that are gone.
	Snapshots int `json:"snapshots"`
	Nodes     int `json:"nodes"`
}

// Recovery is where a restored cluster is on its way back.
type Recovery struct {
	Generation Generation `json:"generation"`
	// Missing are the nodes that have not reported in this generation.
	Missing []NodeID `json:"missing,omitempty"`
	// Clearing are the nodes that have not said, since the confirmation, that
	// they run nothing that the servers do not know.
	Clearing []NodeID `json:"clearing,omitempty"`
}

// RecoveryConfirmation is an operator's word that a restored cluster may go on.
type RecoveryConfirmation struct {
	// Number is the generation that is confirmed.
	Number uint64 `json:"number"`
	// Force goes on although some nodes have not reported.
	Force bool `json:"force,omitempty"`
}

// Headers of the HTTP API.
const (
	// HeaderIndex carries the log index of an answer; a blocking query polls
	// with it.
	HeaderIndex = "Berth-Index"
	// HeaderNext carries the token of the next page of a list. Without it the
	// page is the last.
	HeaderNext = "Berth-Next-Token"
	// HeaderNode names the node whose agent asks; its secret is the bearer
	// token of the Authorization header.
	HeaderNode = "Berth-Node"
	// HeaderSession carries the agent's session.
	HeaderSession = "Berth-Session"
	// HeaderEpoch carries the epoch that the agent knows.
	HeaderEpoch = "Berth-Epoch"
	// HeaderOffset carries the position of the first byte of a log.
	HeaderOffset = "Berth-Offset"
	// TrailerError follows a stream that broke off: an Error as JSON. A stream
	// without it is whole.
	TrailerError = "Berth-Error"
)
