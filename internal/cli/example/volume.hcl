# A volume of the CSI plugin PLUGIN.
# Make it with:  berth apply volume.hcl

# The volume's name. Jobs ask for the volume by it.
id        = "example"
name      = "an example" # a label for people
type      = "csi"
plugin_id = "PLUGIN" # as berth plugin list shows it

# The least size that will do, and the most that the plugin may make.
capacity_min = "10GiB"
capacity_max = "20GiB"

# A way in which the volume may be used; one block for each. A job asks for one
# of them. With this one, one allocation has the volume, and may write to it.
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system" # block-device gives the task a device
}

# How it is mounted.
# mount_options {
#   fs_type     = "ext4"
#   mount_flags = ["noatime"]
# }

# What the plugin wants to know. Its documentation names the keys.
# parameters {
#   key = "value"
# }

# Where it is to be reachable, in the plugin's own words. Berth chooses among
# the places of all nodes that have the plugin if nothing is asked for.
# topology_request {
#   required {
#     topology {
#       segments { "zone" = "a" }
#     }
#   }
# }
