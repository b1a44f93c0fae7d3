# Two tasks of different users that share a volume by a group, and a snapshot of it
# every night. The volume can be applied again with another schedule at any time.
volume "mail" {
  type         = "csi"
  plugin_id    = "local"
  capacity_min = "256MiB"

  capability {
    access_mode     = "single-node-writer"
    attachment_mode = "file-system"
  }

  mount_options {
    fs_type = "ext4"
  }

  snapshot_schedule {
    cron = "30 2 * * *" # half past two, in UTC
    keep = 7            # the newest seven that are ready stay
  }
}

job "mail" {
  type = "service"

  group "main" {
    volume "mail" {
      type            = "csi"
      source          = "mail"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"

      # What is on the volume is given to this group, and both tasks are in it.
      fs_group = 4711
    }

    task "deliver" {
      driver = "exec"
      user   = "nobody"

      config {
        command = "/bin/sh"
        # New files have the rights that the umask leaves them.
        args = ["-c", "umask 002; while true; do date > \"/mail/$(date +%s)\"; sleep 10; done"]
      }

      volume_mount {
        volume      = "mail"
        destination = "/mail"
      }
    }

    task "expire" {
      driver = "exec"
      user   = "daemon"

      config {
        command = "/bin/sh"
        args    = ["-c", "while true; do find /mail -type f -mmin +60 -delete; sleep 60; done"]
      }

      volume_mount {
        volume      = "mail"
        destination = "/mail"
      }
    }
  }
}
