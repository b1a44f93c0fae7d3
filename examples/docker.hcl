# A web server in a container: its pages are on a volume, its certificates in a
# directory that each machine has, and its configuration is made on the node.
#
# The agent's configuration names the directory, and the job runs only where it is:
#
#   host_volume "certs" {
#     path      = "/etc/ssl/cluster"
#     read_only = true
#   }
volume "site" {
  type         = "csi"
  plugin_id    = "local"
  capacity_min = "256MiB"

  capability {
    access_mode     = "single-node-writer"
    attachment_mode = "file-system"
  }
}

job "site" {
  type = "service"

  group "main" {
    network {
      port "http" {
        to = 8080 # inside; outside it is one that is free on the node
      }
    }

    volume "site" {
      type            = "csi"
      source          = "site"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
    }

    volume "certs" {
      type      = "host"
      source    = "certs"
      read_only = true
    }

    service {
      name = "site"
      port = "http"

      check {
        type     = "tcp"
        interval = "10s"
        timeout  = "2s"
      }
    }

    task "nginx" {
      driver = "docker"

      config {
        image        = "nginx:1.29"
        network_mode = "bridge"
        ports        = ["http"]
        # A relative source lies in the task's directory.
        volumes = ["local/site.conf:/etc/nginx/conf.d/default.conf:ro"]
      }

      template {
        destination = "local/site.conf"
        data        = <<-EOT
          server {
            listen 8080;
            root   /usr/share/nginx/html;
          }
        EOT
      }

      volume_mount {
        volume      = "site"
        destination = "/usr/share/nginx/html"
      }

      volume_mount {
        volume      = "certs"
        destination = "/etc/nginx/certs"
      }

      resources {
        cpu    = 200
        memory = 128
      }
    }
  }
}
