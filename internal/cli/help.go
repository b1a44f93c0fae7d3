package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// usages shows how each command is called, by its path below berth. A command
// that has its own example is not in it.
func usages() map[string][]string {
	return map[string][]string{
		"apply": {
			"berth apply volume.hcl job.hcl",
			"berth apply --detach -n staging job.hcl",
			"berth apply --healthy --timeout 90s job.hcl",
			"berth apply --check-version 12 job.hcl",
			"generate-job | berth apply -",
		},
		"plan": {
			"berth plan job.hcl",
			"berth plan --detailed-exitcode volume.hcl job.hcl",
			"berth plan job.hcl --json | jq .jobs[].start",
		},
		"validate":                {"berth validate volume.hcl job.hcl"},
		"fmt":                     {"berth fmt volume.hcl job.hcl"},
		"status":                  {"berth status", "berth status --template '{{range .Waits}}{{.Subject}}: {{.Reason}}{{\"\\n\"}}{{end}}'"},
		"namespace list":          {"berth namespace list"},
		"job list":                {"berth job list", "berth job list -n staging"},
		"job status":              {"berth job status writer", "berth job status writer --json"},
		"job explain":             {"berth job explain writer"},
		"job stop":                {"berth job stop writer", "berth job stop writer --detach"},
		"job history":             {"berth job history writer", "berth job history writer --diff"},
		"job promote":             {"berth job promote web"},
		"job revert":              {"berth job revert writer 2"},
		"job scale":               {"berth job scale writer 3", "berth job scale writer web 3 --detach"},
		"job init":                {"berth job init"},
		"volume list":             {"berth volume list", "berth volume list | cut -f 1,2", "berth volume list --template '{{range .}}{{.ID}} {{size .Status.Capacity}}{{\"\\n\"}}{{end}}'"},
		"volume status":           {"berth volume status notes", "berth volume status notes --json"},
		"volume explain":          {"berth volume explain notes"},
		"volume delete":           {"berth volume delete notes", "berth volume delete notes --timeout 2m"},
		"volume expand":           {"berth volume expand notes --capacity-min 20GiB", "berth volume expand notes --capacity-min 20GiB --capacity-max 30GiB --detach"},
		"volume modify":           {"berth volume modify notes iops=3000 throughput=250"},
		"volume detach":           {"berth volume detach notes", "berth volume detach notes db-1", "berth volume detach notes c8e3 --stop --timeout 2m"},
		"volume leaks":            {"berth volume leaks", "berth volume leaks --now --plugin local", "berth volume leaks --delete leak-0a1b2c3d4e5f"},
		"volume import":           {"berth volume import archive --plugin nfs --external-id /exports/archive", "berth volume import --file disks.hcl"},
		"volume adopt":            {"berth volume adopt retained-0a1b2c3d4e5f notes"},
		"volume deregister":       {"berth volume deregister notes"},
		"volume init":             {"berth volume init"},
		"snapshot create":         {"berth snapshot create notes", "berth snapshot create notes before-upgrade --keep 30d", "berth snapshot create notes --parameter tier=cold --detach"},
		"snapshot list":           {"berth snapshot list", "berth snapshot list --volume notes", "berth snapshot list --plugin local"},
		"snapshot status":         {"berth snapshot status before-upgrade"},
		"snapshot delete":         {"berth snapshot delete before-upgrade"},
		"var put":                 {"berth var put nomad/jobs/writer user=writer password=@password.txt", "pass show writer | berth var put nomad/jobs/writer password=@-", "berth var put nomad/jobs/writer @writer.hcl --create-only", "berth var put -n staging - < writer.json"},
		"var get":                 {"berth var get nomad/jobs/writer", "berth var get nomad/jobs/writer --item password"},
		"var list":                {"berth var list", "berth var list nomad/jobs/"},
		"var delete":              {"berth var delete nomad/jobs/writer nomad/jobs/writer/web"},
		"event stream":            {"berth event stream", "berth event stream --topic volume:notes --topic job", "berth event stream -n '*' --json | jq .events[].key"},
		"alloc list":              {"berth alloc list"},
		"alloc status":            {"berth alloc status c8e3"},
		"alloc explain":           {"berth alloc explain c8e3"},
		"alloc stats":             {"berth alloc stats c8e3"},
		"alloc logs":              {"berth alloc logs c8e3", "berth alloc logs -f --tail 20 c8e3 server"},
		"alloc exec":              {"berth alloc exec c8e3 ls -l /alloc", "berth alloc exec -it --task server c8e3 sh", "berth alloc exec -i c8e3 psql < dump.sql"},
		"alloc signal":            {"berth alloc signal c8e3 SIGHUP", "berth alloc signal c8e3 --task server SIGKILL"},
		"alloc restart":           {"berth alloc restart c8e3", "berth alloc restart c8e3 server", "berth alloc restart c8e3 91d0 5f2a"},
		"node list":               {"berth node list"},
		"node status":             {"berth node status db-1"},
		"plugin list":             {"berth plugin list"},
		"plugin status":           {"berth plugin status local"},
		"plugin volumes":          {"berth plugin volumes local", "berth plugin volumes local --unknown --json | jq .[].external_id"},
		"plugin capacity":         {"berth plugin capacity local"},
		"plugin local":            {"berth plugin local --root /srv/volumes --endpoint unix:///run/berth-local.sock --node-id db-1"},
		"attachment list":         {"berth attachment list", "berth attachment list --all --json | jq '.[] | select(.status.state == \"unpublishing\")'"},
		"attachment status":       {"berth attachment status c8e3", "berth attachment status c8e3/data"},
		"node drain":              {"berth node drain db-1-9f31c2aa --deadline 30m --reason 'new disks'", "berth node drain --disable db-1-9f31c2aa"},
		"node eligibility":        {"berth node eligibility --enable db-1-9f31c2aa"},
		"node fence":              {"berth node fence db-1-9f31c2aa --reason 'power off, seen at the rack'"},
		"node forget":             {"berth node forget db-1-9f31c2aa"},
		"operation list":          {"berth operation list"},
		"operation status":        {"berth operation status create/default/notes@1", "berth operation status create/default/notes"},
		"operation abandon":       {"berth operation abandon create/default/notes@1"},
		"system gc":               {"berth system gc"},
		"system snapshot save":    {"berth system snapshot save cluster.state"},
		"system snapshot restore": {"berth system snapshot restore cluster.state"},
		"system recovery":         {"berth system recovery"},
		"system recovery confirm": {"berth system recovery confirm"},
		"agent":                   {"berth agent --dev", "berth agent --config /etc/berth/agent.hcl"},
	}
}

// explainThemselves gives each command its examples.
func explainThemselves(cmd *cobra.Command, all map[string][]string) {
	for _, sub := range cmd.Commands() {
		explainThemselves(sub, all)
	}
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	if lines := all[path]; cmd.Example == "" && len(lines) > 0 {
		cmd.Example = "  " + strings.Join(lines, "\n  ")
	}
}
