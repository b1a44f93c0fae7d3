# A job that appends a line to a file on the volume, every second.
job "writer" {
  type = "service"

  group "main" {
    count = 1

    volume "data" {
      type            = "csi"
      source          = "notes"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
    }

    task "append" {
      driver = "exec"
      user   = "root"

      config {
        command = "/bin/sh"
        args    = ["-c", "n=0; while true; do n=$((n + 1)); echo \"${BERTH_ALLOC_ID} line $n\" >> /data/notes.txt; sleep 1; done"]
      }

      volume_mount {
        volume      = "data"
        destination = "/data"
      }

      kill_signal  = "SIGTERM"
      kill_timeout = "3s"
    }
  }
}
