# The disk of postgres.hcl, with xfs.
id           = "postgres"
type         = "csi"
plugin_id    = "local"
capacity_min = "512MiB"

capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

mount_options {
  fs_type = "xfs"
}
