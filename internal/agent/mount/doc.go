// Package mount is the kernel's mount table: it looks, binds and unmounts, and
// removes directory trees that hold no mounts. Others decide what should be
// mounted; nothing here keeps a record of its own.
//
// It never touches the file system behind a mount that it is asked about: a
// dead FUSE server or an unreachable NFS server must not take the agent with
// it. It never detaches lazily (MNT_DETACH), because that answers "unmounted"
// while processes still write. And RemoveAll never deletes across a mount
// point or through a symbolic link.
//
// Invariant: the answers are the kernel's at the time of the call, read whole.
package mount
