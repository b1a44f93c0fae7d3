package cli_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
)

// TestCompletion: shells are offered ids with what a person knows them by, of
// the namespace, and nothing where nothing can follow.
func TestCompletion(t *testing.T) {
	t.Parallel()
	f := newFake(t, world())
	const none, files, filtered = ":4\n", ":0\n", ":8\n"
	volumes := "archive\tcreating, plugin tape\npg\tready, plugin disk\n" + none
	for words, want := range map[string]string{
		"volume status |":        volumes,
		"volume explain |":       volumes,
		"volume delete |":        volumes,
		"volume status -n dev |": none,
		"volume status x|":       none,
		"volume status pg |":     none,
		"volume list |":          none,
		"job stop |":             "db\tservice, running\n" + none,
		"alloc status |":         "0f1e2d3c4b5a69788796a5b4c3d2e1f0\tdb.main[0], running\nffee2d3c4b5a69788796a5b4c3d2e1f0\tdb.main[0], failed\n" + none,
		"alloc explain f|":       "ffee2d3c4b5a69788796a5b4c3d2e1f0\tdb.main[0], failed\n" + none,
		"node status |":          "db-1-9f31c2aa\tready\n" + none,
		"plugin status |":        "disk\t1 of 2 nodes healthy\n" + none,
		"operation abandon p|":   "publish/default/pg/db-1-9f31c2aa@2\twaiting\n" + none,
		"apply |":                "hcl\njson\n" + filtered,
		"system snapshot save |": files,
		"status --namespace |":   "default\nstaging\n" + none,
	} {
		args := append([]string{"__complete"}, strings.Fields(strings.TrimSuffix(words, "|"))...)
		if strings.HasSuffix(words, " |") {
			args = append(args, "")
		}
		got := run(t, f.URL, args...)
		if diff := cmp.Diff(want, got.stdout); diff != "" || got.status != 0 {
			t.Errorf("berth %s: exit status %d (-want +got):\n%s", words, got.status, diff)
		}
	}
}

// TestEveryArgumentIsCompleted, or is one of which nobody can know what it is to
// be: where the shell would offer files, there are files.
func TestEveryArgumentIsCompleted(t *testing.T) {
	t.Parallel()
	w := world()
	alloc := "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
	w["GET /v1/services"] = []api.ServiceInfo{{Namespace: "default", Name: "pg", Instances: []api.ServiceInstance{{}}}}
	w["GET /v1/attachments"] = []*api.Attachment{{AllocID: api.AllocID(alloc), Name: "data", Namespace: "default", VolumeID: "pg", Status: api.AttachmentStatus{State: api.NodePublished}}}
	w["GET /v1/allocation/"+alloc] = w["GET /v1/allocation/0f1e2d3c"]
	w["GET /v1/snapshots"] = []*api.Snapshot{{Namespace: "default", ID: "before", VolumeID: "pg", Status: api.SnapshotStatus{State: api.SnapshotReady}}}
	job, _ := w["GET /v1/job/default/db"].(api.JobInfo)
	db := *job.Job
	db.Spec.Groups = []api.TaskGroup{{Name: "main", Count: 3}}
	w["GET /v1/job/default/db"] = api.JobInfo{Job: &db}
	f := newFake(t, w)
	// first is what the argument before the one in question is, by the command's group.
	first := map[string]string{"job": "db", "volume": "pg", "alloc": alloc}
	const (
		free    = "its user says what it is to be"
		command = "what a task's image has is not known"
	)
	reasons := map[string]string{
		"alloc exec COMMAND": command, "alloc exec ARG": command,
		"job scale COUNT": free, "volume expand SIZE": free, "volume modify KEY=VALUE": free, "volume import ID": free,
		"volume adopt ID": free, "snapshot create NAME": free, "var put KEY=VALUE...|@FILE|-": free, "system snapshot save FILE": free, "system snapshot restore FILE": free,
	}
	const noFiles, byExtension = ":4\n", ":8\n"
	ask := func(words []string) string { return run(t, f.URL, append([]string{"__complete"}, words...)...).stdout }
	for path, cmd := range leaves(t) {
		words := strings.Fields(path)
		group, _, _ := strings.Cut(path, " ")
		args := slices.Clone(words)
		for _, word := range strings.Fields(cmd.Use)[1:] {
			word = strings.Trim(word, "[].")
			if strings.HasPrefix(word, "--") {
				continue
			}
			got := ask(append(slices.Clone(args), ""))
			_, reasoned := reasons[path+" "+word]
			if offered := strings.HasSuffix(got, byExtension) || strings.HasSuffix(got, noFiles) && got != noFiles; offered == reasoned {
				t.Errorf("berth %s: for %s it is offered %q; complete it, or say here why not", strings.Join(args, " "), word, got)
			}
			if args = append(args, first[group]); first[group] == "" {
				args[len(args)-1] = "x"
			}
		}
		if len(args) == len(words) && !cmd.HasSubCommands() {
			if got := ask(append(slices.Clone(args), "")); got != noFiles {
				t.Errorf("berth %s takes nothing, and is offered %q", path, got)
			}
		}
	}
	for words, want := range map[string]string{
		"var get nomad/jobs/db/|":             "nomad/jobs/db/main\ttoken\n",
		"var delete nomad/jobs/db |":          "nomad/jobs/db\tpassword, tls.crt, user\nnomad/jobs/db/main\ttoken\n",
		"var put nomad/jobs/db a=b |":         "",
		"job revert db |":                     "1\tstable\n",
		"job scale db |":                      "main\tcount 3\n",
		"job scale db main |":                 "",
		"alloc logs " + alloc + " p|":         "postgres\trunning\nprobe\tended\n",
		"alloc exec --task b|":                "backup\tended\n",
		"alloc signal 0f1e SIGU|":             "SIGUSR1\nSIGUSR2\n",
		"alloc signal --task b|":              "backup\tended\n",
		"volume detach pg |":                  "db-1-9f31c2aa\tnode, published\ndb-2\tnode, none\n" + alloc + "\tnode-published of job db\n",
		"volume detach none |":                "",
		"node fence db|":                      "db-1-9f31c2aa\tready\n",
		"node eligibility --enable |":         "db-1-9f31c2aa\tready\n",
		"plugin capacity |":                   "disk\t1 of 2 nodes healthy\n",
		"service status |":                    "pg\t1 instance\n",
		"attachment status |":                 "0f1e2d3c/data\tnode-published, volume pg\n",
		"volume adopt |":                      "leak-0a1b2c3d4e5f\tvol\\x1b-9 of plugin disk\nretained-0a1b2c3d4e5f\tvol-8 of plugin disk\n",
		"volume leaks --delete r|":            "retained-0a1b2c3d4e5f\tvol-8 of plugin disk\n",
		"snapshot list --plugin |":            "disk\t1 of 2 nodes healthy\n",
		"snapshot list --volume p|":           "pg\tready, plugin disk\n",
		"snapshot create |":                   "archive\tcreating, plugin tape\npg\tready, plugin disk\n",
		"volume delete pg --reclaim |":        "delete\nretain\n",
		"volume import x --attachment-mode |": "file-system\nblock-device\n",
	} {
		args := strings.Fields(strings.TrimSuffix(words, "|"))
		if strings.HasSuffix(words, " |") {
			args = append(args, "")
		}
		if diff := cmp.Diff(want+noFiles, ask(args)); diff != "" {
			t.Errorf("berth %s (-want +got):\n%s", words, diff)
		}
	}
}

// TestCompletionIsQuick, and silent, whatever is at the address.
func TestCompletionIsQuick(t *testing.T) {
	t.Parallel()
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(hangs.Close)
	garbage := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(garbage.Close)
	for name, address := range map[string]string{
		"Hangs": hangs.URL, "Garbage": garbage.URL, "Nobody": "http://127.0.0.1:1", "NoAddress": "://",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			got := run(t, address, "__complete", "volume", "status", "")
			want := result{stdout: ":4\n", stderr: "Completion ended with directive: ShellCompDirectiveNoFileComp\n"}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}
