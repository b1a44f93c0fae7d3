# Three members of a store that replicates by itself, each with a volume of its own.
# The allocation with index 0 has store[0], the next has store[1], and so on. Only
# the first is written here; the others are made like it when they are wanted. An
# allocation that is replaced finds the volume of its index again.
volume "store[0]" {
  type         = "csi"
  plugin_id    = "local"
  capacity_min = "256MiB"

  capability {
    access_mode     = "single-node-writer"
    attachment_mode = "file-system"
  }
}

job "store" {
  type = "service"

  # On a cluster of one machine, leave this out.
  constraint {
    operator = "distinct_hosts"
  }

  group "member" {
    count = 3

    update {
      max_parallel     = 1 # the others keep what this one holds
      min_healthy_time = "30s"
    }

    volume "data" {
      type            = "csi"
      source          = "store"
      per_alloc       = true
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
    }

    task "member" {
      driver = "exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "echo \"member ${BERTH_ALLOC_INDEX}\" > /data/name; exec sleep infinity"]
      }

      volume_mount {
        volume      = "data"
        destination = "/data"
      }
    }
  }
}
