# PostgreSQL from the packages of the machine, with its data on a volume
# (postgres-volume.hcl). It is its own only user: it listens on loopback, and
# trusts who reaches it.
job "postgres" {
  type = "service"

  group "main" {
    network {
      port "db" {}
    }

    restart {
      attempts = 10
      interval = "10m"
      delay    = "1s"
      mode     = "delay"
    }

    volume "data" {
      type            = "csi"
      source          = "postgres"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
    }

    task "server" {
      driver = "exec"
      user   = "postgres"

      config {
        command = "/bin/sh"
        # A first start that is cut short leaves nothing that looks like a database.
        args = ["-ec", <<SCRIPT
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
if [ ! -d /data/pg ]; then
  rm -rf /data/new
  "$bin/initdb" --pgdata /data/new --auth trust --username postgres
  mv /data/new /data/pg
fi
exec "$bin/postgres" -D /data/pg -k /tmp -c listen_addresses=127.0.0.1 -p "$BERTH_PORT_db"
SCRIPT
        ]
      }

      volume_mount {
        volume      = "data"
        destination = "/data"
      }

      # A fast shutdown: clients are disconnected, everything is written.
      kill_signal  = "SIGINT"
      kill_timeout = "30s"
    }
  }
}
