# Two ways to exchange the allocations of a job, one job for each.
#
# The first tries a newer version in one place, beside the older one, and waits:
#
#   berth apply examples/updates.hcl     again, with another greeting
#   berth job status front               says that it waits, and which is which
#   berth job promote front              goes on with the other places, once it is healthy
#   berth job revert front               goes back instead
job "front" {
  type = "service"

  group "main" {
    count = 3

    update {
      canary           = 1
      max_parallel     = 1
      min_healthy_time = "10s"
      healthy_deadline = "2m"
      auto_revert      = true # a canary that does not become healthy goes by itself
    }

    network {
      port "http" {}
    }

    service {
      name = "front"
      port = "http"

      check {
        type     = "http"
        path     = "/"
        interval = "5s"
        timeout  = "2s"
      }
    }

    task "server" {
      driver = "exec"

      config {
        command = "/usr/bin/python3"
        args    = ["-m", "http.server", "${BERTH_PORT_http}", "--directory", "/local/site"]
      }

      template {
        data        = "Good morning from ${node.unique.name}.\n"
        destination = "local/site/index.html"
      }
    }
  }
}

# The second starts the newer allocation of each place, and stops the older one
# when it is healthy. The task runs directly on the host, so Berth cannot know that
# two of it get along, and the file says so. A volume for one allocation would not
# allow it.
job "worker" {
  type = "service"

  group "main" {
    count = 2

    update {
      order            = "start-first"
      min_healthy_time = "10s"
      auto_revert      = true
    }

    task "work" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "while true; do echo \"still here\"; sleep 10; done"]
      }

      kill_timeout = "5s"
    }
  }
}
