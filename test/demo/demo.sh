#!/usr/bin/env bash
# Shows one volume's whole life on this machine, for a person who sees Berth for
# the first time. It needs root, because it mounts. It leaves the machine as it
# was: its data is in a directory of its own, and goes at the end.
set -euo pipefail

cd "$(dirname "$0")/../.."
berth=${BERTH_BINARY:-$PWD/bin/berth}
http=${BERTH_DEMO_PORT:-7400}
raft=${BERTH_DEMO_RAFT_PORT:-7401}
export BERTH_ADDRESS=http://127.0.0.1:$http

bold=''; dim=''; plain=''
if [ -t 1 ]; then bold=$'\e[1m'; dim=$'\e[2m'; plain=$'\e[0m'; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
run() { printf '%s$ %s%s\n' "$dim" "${*/#$berth/berth}" "$plain"; "$@"; }

if [ "$(id -u)" != 0 ]; then
  echo "the demo mounts file systems: run it as root (sudo make demo)" >&2
  exit 1
fi

# The answers must come from the agent that is started here.
for port in "$http" "$raft"; do
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    echo "port $port is in use: choose others with BERTH_DEMO_PORT and BERTH_DEMO_RAFT_PORT" >&2
    exit 1
  fi
done

# Tasks run in a cgroup, which others on this machine may have, too.
cgroups() { find /sys/fs/cgroup -maxdepth 2 -type d -name berth; }
before=$(cgroups)

data=$(mktemp -d "${TMPDIR:-/tmp}/berth-demo.XXXXXX")
log=$data.log
agent=
killed=

start() {
  "$berth" agent --dev --data-dir "$data" --http-address "127.0.0.1:$http" --raft-address "127.0.0.1:$raft" >>"$log" 2>&1 &
  agent=$!
  for _ in $(seq 100); do
    if ! kill -0 "$agent" 2>/dev/null; then break; fi
    # Ready means that the node is there with its plugin, not only the server.
    if "$berth" plugin list 2>/dev/null | grep -q '1/1[[:space:]]*1/1'; then return 0; fi
    sleep 0.1
  done
  echo "the agent did not start; its log is in $log:" >&2
  tail -n 20 "$log" >&2
  exit 1
}

# However the script ends, the agent ends, and with it its allocations.
finish() {
  status=$?
  trap - EXIT
  if [ -n "$killed" ]; then start; fi # who was killed left its tasks running; the next one ends them
  if [ -n "$agent" ] && kill -0 "$agent" 2>/dev/null; then
    kill -INT "$agent"
    wait "$agent" || status=1
  fi
  if [ "$status" = 0 ]; then rm -f "$log"; else echo "failed; the log is in $log" >&2; fi
  exit "$status"
}
trap finish EXIT

# target prints where the volume is mounted on this machine.
target() { "$berth" volume status notes | awk '/node-published/ { print $NF }'; }

say "1. Start Berth: one server and one agent in one process, with a CSI driver for this machine's disk."
printf '%s$ berth agent --dev --data-dir %s &%s\n' "$dim" "$data" "$plain"
start
run "$berth" status
run "$berth" plugin list

say "2. Apply two files: a volume of 256 MiB with ext4, and a job that appends a line a second to a file on it."
run "$berth" apply examples/volume.hcl examples/job.hcl

say "3. Look at them. The job's allocation holds the volume; the volume is staged and mounted on this node."
run "$berth" job status writer
run "$berth" volume status notes
sleep 2
say "   What the job has written:"
run tail -n 3 "$(target)/notes.txt"

say "4. Kill the agent, server and driver with SIGKILL. The task runs on; the next agent goes on with it."
printf '%s$ kill -9 %s%s\n' "$dim" "$agent" "$plain"
kill -KILL "$agent"
wait "$agent" 2>/dev/null || true
killed=yes
lines=$(wc -l <"$data"/csi/*/mount/*/notes.txt)
sleep 2
printf 'without an agent the file grew from %s to %s lines\n' "$lines" "$(wc -l <"$data"/csi/*/mount/*/notes.txt)"
start
killed=
run "$berth" job status writer

say "5. Stop the job. The volume is unmounted, unstaged and free; nothing of it is left in the mount table."
run "$berth" job stop writer
run "$berth" volume status notes
printf 'mounts below the data directory: %s\n' "$(grep -c " $data/" /proc/self/mountinfo || true)"

say "6. Run the job again, as a new allocation. The data is there."
run "$berth" apply examples/job.hcl
sleep 1
run cat "$(target)/notes.txt"

say "7. Delete the volume. Not while the job holds it ..."
run "$berth" volume delete notes || echo "(exit status $?)"
say "   ... but after it has ended."
run "$berth" job stop writer
run "$berth" volume delete notes
run "$berth" operation list

say "8. End the agent. It ends its allocations and removes its data."
printf '%s$ kill -INT %s%s\n' "$dim" "$agent" "$plain"
kill -INT "$agent"
wait "$agent"
agent=
if [ -e "$data" ] || grep -q " $data/" /proc/self/mountinfo || losetup -a | grep -qF "$data" || pgrep -f "$data" >/dev/null ||
  { [ -z "$before" ] && [ -n "$(cgroups)" ]; }; then
  echo "something of the demo is left in $data" >&2
  exit 1
fi
echo "Nothing is left: no mount, no loop device, no process, no cgroup, no file."
