// Package record keeps what the local driver knows of its volumes and snapshots: one JSON
// file for each, and the names by which a volume is called.
//
// It owns the shape of a record and the way it reaches the disk. It never
// looks at the kernel, never touches a volume's data, and decides nothing.
//
// Invariant: after a crash at any moment a record is there as it was before
// the last Put or as it was after, never in between. A record that cannot be
// read harms only what it is about, and is never overwritten.
package record
