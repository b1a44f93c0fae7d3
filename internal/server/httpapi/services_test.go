package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
)

const withServices = `
node {"id":"n1","status":{"state":"ready","profile":{"address":"10.0.0.1"}}}
node {"id":"n2","status":{"state":"down","profile":{"address":"10.0.0.2"}}}
job {"id":"pg","revision":2,"spec":{"groups":[{"name":"main","count":3,"ports":[{"name":"db"}],"services":[{"name":"postgres","port":"db","tags":["v2"]},{"name":"admin","port":"db"}]}]}}
revision {"job_uid":"uid-pg","revision":1,"spec":{"groups":[{"name":"main","count":3,"ports":[{"name":"old"}],"services":[{"name":"postgres","port":"old","tags":["v1"]}]}]}}
allocation {"id":"a1","job_id":"pg","revision":2,"group":"main","index":0,"node_id":"n1","ports":[{"name":"db","number":20001}],"status":{"state":"running"}}
allocation {"id":"a2","job_id":"pg","revision":1,"group":"main","index":1,"node_id":"n1","ports":[{"name":"old","number":20002}],"status":{"state":"running"}}
allocation {"id":"a3","job_id":"pg","revision":2,"group":"main","index":2,"node_id":"n2","ports":[{"name":"db","number":20001}],"status":{"state":"running"}}
allocation {"id":"a4","job_id":"pg","revision":2,"group":"main","index":3,"node_id":"n1","ports":[{"name":"db","number":20003}],"status":{"state":"pending"}}
allocation {"id":"a5","job_id":"pg","revision":1,"group":"main","index":4,"node_id":"n1","desired":"stop","ports":[{"name":"old","number":20004}],"status":{"state":"running"}}
allocation {"id":"a6","job_id":"pg","revision":2,"group":"main","index":5,"node_id":"n1","ports":[{"name":"db","number":20005}],"status":{"state":"failed"}}
job {"namespace":"other","id":"pg","uid":"uid-other","spec":{"groups":[{"name":"main","ports":[{"name":"db"}],"services":[{"name":"postgres","port":"db"}]}]}}
job {"id":"web","spec":{"groups":[{"count":3,"services":[{"name":"checked","port":"80","checks":[{"name":"tcp"},{"name":"http"}]}]}]}}
revision {"job_uid":"uid-web","revision":1,"spec":{"groups":[{"count":3,"services":[{"name":"checked","port":"80","checks":[{"name":"tcp"},{"name":"http"}]}]}]}}
allocation {"id":"a7","job_id":"web","index":0,"node_id":"n1","status":{"state":"running","checks":[{"service":"checked","name":"tcp","status":"passing"},{"service":"checked","name":"http","status":"passing"}]}}
allocation {"id":"a8","job_id":"web","index":1,"node_id":"n1","status":{"state":"running","checks":[{"service":"checked","name":"tcp","status":"passing"}]}}
allocation {"id":"a9","job_id":"web","index":2,"node_id":"n1","status":{"state":"running","checks":[{"service":"checked","name":"tcp","status":"critical","output":"refused"},{"service":"checked","name":"http","status":"pending"}]}}
job {"id":"stopped","desired":"absent","spec":{"groups":[{"name":"main","ports":[{"name":"db"}],"services":[{"name":"gone","port":"db"}]}]}}
`

// places are the addresses of a service's instances, one a line.
func places(s api.ServiceInfo) string {
	var lines []string
	for _, i := range s.Instances {
		lines = append(lines, fmt.Sprintf("%s %s:%d %v %v", i.AllocID, i.Address, i.Port, i.Tags, i.Healthy))
	}
	return strings.Join(lines, "\n")
}

func TestServiceIsFoundWhereItsAllocationsAre(t *testing.T) {
	t.Parallel()
	f := newFake(t, withServices, nil)
	for query, want := range map[string]string{
		"postgres": `a1 10.0.0.1:20001 [v2] true
a2 10.0.0.1:20002 [v1] true`,
		"postgres?all=true": `a1 10.0.0.1:20001 [v2] true
a2 10.0.0.1:20002 [v1] true
a3 10.0.0.2:20001 [v2] false
a4 10.0.0.1:20003 [v2] false`,
		"admin?all=true": `a1 10.0.0.1:20001 [] true
a3 10.0.0.2:20001 [] false
a4 10.0.0.1:20003 [] false`,
		"postgres?namespace=other": "",
		"checked":                  "a7 10.0.0.1:80 [] true",
		"checked?all=true": `a7 10.0.0.1:80 [] true
a8 10.0.0.1:80 [] false
a9 10.0.0.1:80 [] false`,
	} {
		answer := f.get(http.MethodGet, "/v1/service/"+query)
		var s api.ServiceInfo
		if err := json.Unmarshal([]byte(answer.body), &s); err != nil || answer.status != http.StatusOK || s.Instances == nil {
			t.Fatalf("%s: %d %s", query, answer.status, answer.body)
		}
		if diff := cmp.Diff(want, places(s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	for _, query := range []string{"none", "gone", "admin?namespace=other"} {
		if answer := f.get(http.MethodGet, "/v1/service/"+query); answer.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", query, answer.status, answer.body)
		}
	}
}

func TestServicesAreListedOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t, withServices, nil)
	for query, want := range map[string]string{
		"":                              "default/admin default/checked default/postgres other/postgres",
		"?namespace=*":                  "default/admin default/checked default/postgres other/postgres",
		"?namespace=*&prefix=post":      "default/postgres other/postgres",
		"?namespace=other":              "other/postgres",
		"?namespace=*&filter=name==pos": "",
	} {
		answer := f.get(http.MethodGet, "/v1/services"+query)
		var list []api.ServiceInfo
		if err := json.Unmarshal([]byte(answer.body), &list); err != nil || answer.status != http.StatusOK {
			t.Fatalf("%s: %d %s", query, answer.status, answer.body)
		}
		var names []string
		for _, s := range list {
			names = append(names, string(s.Namespace)+"/"+s.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
}
