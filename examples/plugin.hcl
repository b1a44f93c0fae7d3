# A CSI plugin that Berth runs itself: its own driver for local volumes, on every node.
job "plugin-disk" {
  type = "system" # on every node, also on those that come later

  group "main" {
    task "driver" {
      driver = "raw_exec"

      config {
        command = "/usr/local/bin/berth"
        args    = ["plugin", "local", "--node-id", "${node.unique.id}", "--root", "/var/lib/disk"]
      }

      csi_plugin {
        id        = "disk"
        type      = "monolith"
        exclusive = true # this driver locks its root
      }
    }
  }
}
