# A task that wants a device and no file system, as stores do that lay out their
# disks themselves. The device is the task's user's, who need not be root.
volume "disk" {
  type         = "csi"
  plugin_id    = "local"
  capacity_min = "64MiB"

  capability {
    access_mode     = "single-node-writer"
    attachment_mode = "block-device"
  }
}

job "disk" {
  type = "service"

  group "main" {
    volume "disk" {
      type            = "csi"
      source          = "disk"
      access_mode     = "single-node-writer"
      attachment_mode = "block-device"
    }

    task "write" {
      driver = "exec"

      config {
        command = "/bin/sh"
        # The first block counts how often the task was started.
        args = ["-ec", <<SCRIPT
n=$(head -c 16 /dev/disk | tr -dc 0-9)
n=$((n + 1))
echo "start $n"
printf '%-16s' "$n" | dd of=/dev/disk conv=fsync,notrunc status=none
exec sleep infinity
SCRIPT
        ]
      }

      volume_mount {
        volume      = "disk"
        destination = "/dev/disk" # only block devices may be below /dev
      }
    }
  }
}
