// Package csimanager keeps the CSI drivers of a node: one instance for each
// registered plugin, with its fingerprint, and the VolumeMounter, which
// stages, publishes, unpublishes and unstages volumes.
//
// It never talks to a server and never decides that a volume is wanted.
// Invariants: what a plugin is asked to do on this node is in the local
// database before, and until after it was undone; one call at a time for each
// volume; the kernel's mount table is looked at before and after every call,
// and is believed rather than the plugin. DESIGN.md says more.
package csimanager
