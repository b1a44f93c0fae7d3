# A volume of 256 MiB with an ext4 file system, on this machine's disk.
id        = "notes"
name      = "notes"
type      = "csi"
plugin_id = "local"

capacity_min = "256MiB"
capacity_max = "1GiB"

capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

mount_options {
  fs_type = "ext4"
}
