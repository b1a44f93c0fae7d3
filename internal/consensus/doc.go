// Package consensus is the replicated log: hashicorp/raft behind Propose,
// Decide, Barrier and leadership as one context. It owns the raft instance,
// its files, the proposer with its overlay, and saved states.
//
// It is the only package that changes the state, and the only way to the log.
// It never decides what to write: commands come from the HTTP API, from agents
// and from controllers.
//
// Invariants: an entry is applied whole, on the state that it was planned on,
// or is void everywhere; the overlay is exactly what the log will produce;
// command time never runs backwards. DESIGN.md says how, and why not the
// obvious way.
package consensus
