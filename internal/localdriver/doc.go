// Package localdriver is the CSI driver that Berth brings along: volumes on
// the disk of one node, and snapshots of them. A volume without a size is a
// directory, a volume with one is a sparse image file with ext4, xfs or btrfs
// in it, on a loop device, or that device itself. On btrfs both are subvolumes.
//
// It owns everything below its root directory: the records of volumes and
// snapshots, and their data. It never touches what lies outside of it, except to mount at the
// staging and target paths that it is given.
//
// Invariants: what is about to be done is recorded before it is done, and the
// kernel is asked before and after; so a call that was cut off anywhere is
// finished by its repetition or undone by its opposite. An existing file
// system is never formatted over. Data is never deleted while the kernel or
// the record shows that it is in use.
package localdriver
