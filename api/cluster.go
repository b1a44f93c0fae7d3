package api

// FeatureLevel is the highest feature level that this version understands.
// Changed Apply behaviour, new command kinds and snapshot formats wait until
// the cluster's level, which is stored in the state, allows them.
const FeatureLevel = 1

// Cluster is the one row that says what the cluster is.
type Cluster struct {
	Meta
	// ID is made at the first start and pinned by every agent.
	ID           string     `json:"id"`
	FeatureLevel int        `json:"feature_level"`
	Generation   Generation `json:"generation"`
}
