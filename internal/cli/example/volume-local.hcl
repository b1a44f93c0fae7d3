# A volume of the embedded local driver: space on the disk of one node.
# Make it with:  berth apply volume.hcl

# The volume's name. Jobs ask for the volume by it.
id        = "example"
name      = "an example" # a label for people
type      = "csi"
plugin_id = "local"

# The least size that will do, and the most that the plugin may make.
capacity_min = "64MiB"
capacity_max = "1GiB"

# A way in which the volume may be used; one block for each. A job asks for one
# of them. With this one, one allocation has the volume, and may write to it.
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system" # block-device gives the task a device
}

# The file system and how it is mounted.
# mount_options {
#   fs_type     = "xfs" # ext4 if nothing is asked for
#   mount_flags = ["noatime"]
# }

# The node that it is to be on, by the name that the driver has there. Berth
# chooses among all nodes that have the plugin if nothing is asked for.
# topology_request {
#   required {
#     topology {
#       segments { "local.berth.dev/node" = "node-1" }
#     }
#   }
# }
