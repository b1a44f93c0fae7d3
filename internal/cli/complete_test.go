package cli_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
		"apply |":                "hcl\nyaml\nyml\njson\n" + filtered,
		"system snapshot save |": files,
		"status --namespace |":   "default\n" + none,
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
