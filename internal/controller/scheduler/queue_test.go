package scheduler_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/controller/scheduler"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// TestQueueIsInTheOrderInWhichJobsGetTheVolume: priority, then how long they
// have waited. Who has a place, is done, was stopped or wants another volume
// does not wait.
func TestQueueIsInTheOrderInWhichJobsGetTheVolume(t *testing.T) {
	t.Parallel()
	const group = `"groups":[{"count":2,"volumes":[{"source":"pg"}],"tasks":[{"name":"t","driver":"exec"}]}]`
	v := statetest.Load(t, `
volume {"id":"pg","status":{"state":"ready"}}
job {"id":"new","spec":{`+group+`},"status":{"waiting":"now-1m"}}
job {"id":"old","spec":{`+group+`},"status":{"waiting":"now-3m"}}
job {"id":"urgent","spec":{"priority":90,`+group+`},"status":{"waiting":"now-1s"}}
job {"id":"half","spec":{`+group+`},"status":{"waiting":"now-2m"}}
allocation {"id":"there","job_id":"half","node_id":"n1","status":{"state":"running"}}
job {"id":"full","spec":{"groups":[{"count":1,"volumes":[{"source":"pg"}]}]},"status":{"waiting":"now-9m"}}
allocation {"id":"pending","job_id":"full","node_id":"n1","status":{"state":"pending"}}
job {"id":"leaving","spec":{"groups":[{"count":1,"volumes":[{"source":"pg"}]}]},"status":{"waiting":"now-4m"}}
allocation {"id":"ends","job_id":"leaving","node_id":"n1","desired":"stop","status":{"state":"running"}}
job {"id":"done","spec":{"type":"batch","groups":[{"count":1,"volumes":[{"source":"pg"}]}]},"status":{"waiting":"now-9m"}}
allocation {"id":"ended","job_id":"done","node_id":"n1","status":{"state":"complete"}}
job {"id":"stopped","desired":"absent","spec":{`+group+`},"status":{"waiting":"now-9m"}}
job {"id":"other","spec":{"groups":[{"count":1,"volumes":[{"source":"media"}]}]},"status":{"waiting":"now-9m"}}
`).View()
	jobs, places := scheduler.Queue(v, v.Volume("default", "pg"))
	var got []string
	for _, j := range jobs {
		got = append(got, fmt.Sprintf("%s: %s", j.ID, strings.Join(places[j.UID], ", ")))
	}
	want := []string{
		"urgent: allocation urgent.g[0], allocation urgent.g[1]",
		"leaving: allocation leaving.g[0]",
		"old: allocation old.g[0], allocation old.g[1]",
		"half: allocation half.g[1]",
		"new: allocation new.g[0], allocation new.g[1]",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
