# A web server whose health is asked: by HTTP, as others use it, and by a command
# in the task. Updates wait for both; a server that answers no more is started
# again.
job "web" {
  type = "service"

  group "main" {
    network {
      port "http" {}
    }

    update {
      health_check     = "checks"
      min_healthy_time = "10s"
      auto_revert      = true
    }

    service {
      name = "web"
      port = "http"

      check {
        type     = "http"
        path     = "/"
        interval = "5s"
        timeout  = "2s"

        check_restart {
          limit = 3
          grace = "10s"
        }
      }

      check {
        name                     = "files"
        type                     = "script"
        task                     = "server"
        command                  = "/bin/sh"
        args                     = ["-c", "test -r /local/site/index.html"]
        interval                 = "30s"
        failures_before_critical = 2
      }
    }

    task "server" {
      driver = "exec"

      config {
        command = "/usr/bin/python3"
        args    = ["-m", "http.server", "${BERTH_PORT_http}", "--directory", "/local/site"]
      }

      template {
        data        = "It works.\n"
        destination = "local/site/index.html"
      }
    }
  }
}
