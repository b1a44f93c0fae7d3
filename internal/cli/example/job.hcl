# A job that writes the time into a volume.
# Make the volume with:  berth volume init && berth apply volume.hcl
# Run the job with:      berth apply job.hcl
job "example" {
  # A service runs until it is stopped; a batch until its tasks have succeeded.
  type = "service"

  # Tasks that run on the same node and share volumes.
  group "main" {
    # How many allocations of the group run.
    count = 1

    # A volume that the group gets. The modes must be among the volume's.
    volume "data" {
      type            = "csi"
      source          = "example" # the volume's id
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
      # read_only = true
    }

    # A process.
    task "writer" {
      # exec isolates the task and mounts its volumes; raw_exec does neither.
      driver = "exec"

      # What the driver wants to know. ${NAME} is filled in on the node.
      config {
        command = "/bin/sh"
        args    = ["-c", "while true; do date >> $GREETING_FILE; sleep 10; done"]
      }

      # Environment variables of the task.
      env {
        GREETING_FILE = "/data/times"
      }

      # Where the task finds the volume.
      volume_mount {
        volume      = "data"
        destination = "/data"
      }

      # What asks the task to end, and how long it may take to.
      kill_signal  = "SIGTERM"
      kill_timeout = "10s"
    }
  }
}
