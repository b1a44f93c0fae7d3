# A batch job that needs much room while it works. Its volume is made for the
# allocation and deleted after it, and a last task takes the result away.
#
# The directory for results is a host volume, which the agent's configuration names:
#
#   host_volume "results" {
#     path = "/srv/results"
#   }
job "report" {
  type = "batch"

  group "main" {
    volume "scratch" {
      type            = "csi"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"

      # There is no source: each allocation gets a new, empty volume of its own.
      ephemeral {
        plugin_id    = "local"
        capacity_min = "256MiB"
      }
    }

    volume "results" {
      type   = "host"
      source = "results"
    }

    task "calculate" {
      driver = "exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "seq 1000000 > /scratch/numbers && shuf -n 10 /scratch/numbers > /scratch/report.txt"]
      }

      volume_mount {
        volume      = "scratch"
        destination = "/scratch"
      }
    }

    # It runs when the other has ended, well or not, with the volumes still mounted.
    task "keep" {
      driver       = "exec"
      user         = "root" # the directory of the node belongs to root
      kill_timeout = "2m"   # for as long it may take

      lifecycle {
        hook = "poststop"
      }

      config {
        command = "/bin/sh"
        args    = ["-c", "test ! -e /scratch/report.txt || cp /scratch/report.txt \"/results/${BERTH_ALLOC_ID}.txt\""]
      }

      volume_mount {
        volume      = "scratch"
        destination = "/scratch"
        read_only   = true
      }

      volume_mount {
        volume      = "results"
        destination = "/results"
      }
    }
  }
}
