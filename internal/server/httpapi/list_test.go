package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// many has several of every noun, in namespaces that sort before, between and
// behind each other.
const many = `
cluster {}
node {"id":"n1","status":{"state":"ready","drivers":{"exec":{"healthy":true,"mounts_volumes":true}}}}
node {"id":"n10","status":{"state":"down"}}
node {"id":"n2","status":{"state":"ready"}}
instance {"plugin_id":"disk","node_id":"n1","type":"monolith","healthy":true,"driver":"disk.example","controller_capabilities":["CREATE_DELETE_VOLUME","PUBLISH_UNPUBLISH_VOLUME"]}
instance {"plugin_id":"disk","node_id":"n2","type":"node","reason":"it smells"}
instance {"plugin_id":"disk2","node_id":"n1","type":"controller"}
instance {"plugin_id":"tape","node_id":"n1","type":"node","healthy":true}
volume {"namespace":"a","id":"pg-1","status":{"state":"ready"},"spec":{"parameters":{"a.b/c":"x"}}}
volume {"namespace":"a","id":"web"}
volume {"namespace":"a-b","id":"pg-1"}
volume {"namespace":"a-b","id":"pg-2","spec":{"capacity_min":1024}}
volume {"namespace":"b","id":"pg","spec":{"name":"the \"old\" one"}}
volume {"namespace":"b","id":"pg-1","status":{"state":"ready"},"spec":{"plugin_id":"tape"}}
publication {"namespace":"a","volume_id":"pg-1","node_id":"n1","status":{"staged":true}}
publication {"namespace":"b","volume_id":"pg-1","node_id":"n1"}
publication {"namespace":"b","volume_id":"pg-1","node_id":"n2"}
attachment {"alloc_id":"aa1","name":"data","namespace":"a","volume_id":"pg-1","node_id":"n1"}
attachment {"alloc_id":"aa1","name":"logs","namespace":"a","volume_id":"web","node_id":"n1","read_only":true}
attachment {"alloc_id":"ab2","name":"data","namespace":"b","volume_id":"pg-1","node_id":"n1"}
job {"namespace":"a","id":"db"}
job {"namespace":"b","id":"db"}
job {"namespace":"b","id":"web","spec":{"type":"batch"}}
allocation {"id":"aa1","namespace":"a","job_id":"db","node_id":"n1","status":{"state":"running","tasks":{"t":{"state":"running","pid":7}}}}
allocation {"id":"ab2","namespace":"b","job_id":"db","node_id":"n2"}
allocation {"id":"b3","namespace":"b","job_id":"web","node_id":"n1"}
operation {"id":"create/a/pg-1@1","namespace":"a","volume_id":"pg-1","kind":"create"}
operation {"id":"create/b/pg-1@2","namespace":"b","volume_id":"pg-1","kind":"create"}
operation {"id":"delete/a/web@3","namespace":"a","volume_id":"web","kind":"delete","status":{"state":"waiting","duration":"90s"}}
`

// ids are what names the rows of an answer.
func ids(t *testing.T, r response) string {
	t.Helper()
	var names []string
	for _, row := range into[[]map[string]any](t, r) {
		var parts []string
		for _, field := range []string{"namespace", "plugin_id", "alloc_id", "volume_id", "node_id", "name", "id"} {
			id := row["id"]
			if row["volume_id"] != nil && field == "plugin_id" {
				continue
			}
			if s, ok := row[field].(string); ok && (id == nil || field == "namespace" || field == "id") {
				parts = append(parts, s)
			}
		}
		names = append(names, strings.Join(parts, ":"))
	}
	return strings.Join(names, " ")
}

func TestListsAreNarrowed(t *testing.T) {
	t.Parallel()
	f := newFake(t, many, nil)
	for path, want := range map[string]string{
		"volumes":                                                 "a:pg-1 a:web a-b:pg-1 a-b:pg-2 b:pg b:pg-1",
		"volumes?namespace=*":                                     "a:pg-1 a:web a-b:pg-1 a-b:pg-2 b:pg b:pg-1",
		"volumes?namespace=a":                                     "a:pg-1 a:web",
		"volumes?namespace=c":                                     "",
		"volumes?prefix=pg-":                                      "a:pg-1 a-b:pg-1 a-b:pg-2 b:pg-1",
		"volumes?prefix=x":                                        "",
		"volumes?prefix=pg-&namespace=b":                          "b:pg-1",
		"volumes?filter=status.state==ready":                      "a:pg-1 b:pg-1",
		"volumes?filter=status.state!=ready":                      "a:web a-b:pg-1 a-b:pg-2 b:pg",
		"volumes?filter=id^=pg-&filter=namespace==a-b":            "a-b:pg-1 a-b:pg-2",
		"volumes?filter=spec.plugin_id==tape":                     "b:pg-1",
		"volumes?filter=spec.capacity_min==1024":                  "a-b:pg-2",
		"volumes?filter=spec.parameters.a.b/c==x":                 "a:pg-1",
		"volumes?filter=spec.parameters.a.b/c!=x":                 "a:web a-b:pg-1 a-b:pg-2 b:pg b:pg-1",
		"volumes?filter=spec.mount_options.fs_type==ext4":         "",
		"volumes?filter=status.external_id==":                     "a:web a-b:pg-1 a-b:pg-2 b:pg",
		"volumes?filter=status.state+==+ready":                    "a:pg-1 b:pg-1",
		"volumes?filter=status.state%20==%20%22ready%22":          "a:pg-1 b:pg-1",
		"volumes?filter=+status.state!='ready'+":                  "a:web a-b:pg-1 a-b:pg-2 b:pg",
		"volumes?filter=status.external_id==%22%22":               "a:web a-b:pg-1 a-b:pg-2 b:pg",
		"volumes?filter=spec.name==the+%22old%22+one":             "b:pg",
		"volumes?filter=spec.name=='the+%22old%22+one'":           "b:pg",
		"volumes?filter=spec.name==%22the+%5C%22old%5C%22+one%22": "b:pg",
		"volumes?filter=spec.name^='the+'":                        "b:pg",
		"volumes?filter=spec.name=='the'":                         "",
		"volumes?filter=spec.capacity_min=='1024'":                "a-b:pg-2",
		"publications":                                            "a:pg-1:n1 b:pg-1:n1 b:pg-1:n2",
		"publications?namespace=b":                                "b:pg-1:n1 b:pg-1:n2",
		"publications?prefix=pg&filter=node_id==n1":               "a:pg-1:n1 b:pg-1:n1",
		"publications?filter=status.staged==true":                 "a:pg-1:n1",
		"attachments":                        "a:aa1:pg-1:n1:data a:aa1:web:n1:logs b:ab2:pg-1:n1:data",
		"attachments?namespace=a&prefix=aa":  "a:aa1:pg-1:n1:data a:aa1:web:n1:logs",
		"attachments?filter=read_only==true": "a:aa1:web:n1:logs",
		"jobs":                               "a:db b:db b:web",
		"jobs?namespace=b&prefix=w":          "b:web",
		"jobs?filter=state==pending&filter=spec.type==batch": "b:web",
		"allocations":             "a:aa1 b:ab2 b:b3",
		"allocations?prefix=a":    "a:aa1 b:ab2",
		"allocations?namespace=b": "b:ab2 b:b3",
		"allocations?filter=status.tasks.t.state==running": "a:aa1",
		"allocations?filter=status.tasks.t.pid!=7":         "b:ab2 b:b3",
		"nodes":                            "n1 n10 n2",
		"nodes?prefix=n1":                  "n1 n10",
		"nodes?filter=status.state==ready": "n1 n2",
		"nodes?filter=status.drivers.exec.healthy==true": "n1",
		"plugins":                          "disk disk2 tape",
		"plugins?prefix=disk":              "disk disk2",
		"plugins?prefix=disk2":             "disk2",
		"plugins?filter=nodes_expected==2": "disk",
		"instances":                        "disk:n1 disk:n2 disk2:n1 tape:n1",
		"instances?prefix=disk":            "disk:n1 disk:n2 disk2:n1",
		"instances?filter=healthy==false":  "disk:n2 disk2:n1",
		"instances?filter=controller_capabilities^=PUBLISH":              "disk:n1",
		"instances?filter=controller_capabilities!=CREATE_DELETE_VOLUME": "disk:n2 disk2:n1 tape:n1",
		"operations":                                 "a:create/a/pg-1@1 b:create/b/pg-1@2 a:delete/a/web@3",
		"operations?namespace=a&volume=web":          "a:delete/a/web@3",
		"operations?prefix=create/":                  "a:create/a/pg-1@1 b:create/b/pg-1@2",
		"operations?filter=status.duration==1m30s":   "a:delete/a/web@3",
		"operations?volume=pg-1&filter=kind!=delete": "a:create/a/pg-1@1 b:create/b/pg-1@2",
		"namespaces":                                 "a a-b b default",
		"namespaces?prefix=a":                        "a a-b",
		"namespaces?filter=volumes==2":               "a a-b b",
		"namespaces?filter=jobs!=0":                  "a b",
	} {
		if diff := cmp.Diff(want, ids(t, f.get("GET", "/v1/"+path))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// TestWrongLists: a filter that is misspelled would be one that hides nothing,
// or everything.
func TestWrongLists(t *testing.T) {
	t.Parallel()
	f := newFake(t, many, nil)
	const problem = "the request has a problem\n  "
	for path, want := range map[string]string{
		"volumes?filter=status.stat==ready":             problem + `filter "status.stat" is no field of what is listed; did you mean status.state?`,
		"volumes?filter=pluginId==disk":                 problem + `filter "pluginId" is no field of what is listed; use one of create_index, create_time, desired, id, modify_index, modify_time, namespace, owner, reclaim, secrets, spec, status, uid, version`,
		"volumes?filter=status==ready":                  problem + `filter "status" is no field that has a value; use one of status.accessible_topology, status.capacity, status.context, status.expansion, status.external_id, status.modification, status.mutable_parameters, status.node_expansion, status.operation, status.reason, status.schedule, status.state, status.trace`,
		"volumes?filter=id.x==ready":                    problem + "filter there is nothing below id; end the field there",
		"volumes?filter=create_time==x":                 problem + "filter create_time is no text, number, or true or false; compare another field",
		"volumes?filter=create_time.x==x":               problem + "filter create_time is no text, number, or true or false; compare another field",
		"volumes?filter=ready":                          problem + `filter is "ready", which compares nothing; write field==value, field!=value or field^=prefix, such as status.state==ready`,
		"volumes?filter===ready":                        problem + `filter "" is no field that has a value; use one of create_index, create_time, desired, id, modify_index, modify_time, namespace, owner, reclaim, secrets, spec, status, uid, version`,
		"volumes?filter=version==one":                   problem + `filter compares version with "one"; give a whole number`,
		"volumes?filter=version^=1":                     problem + `filter "version^=1" asks how version begins, which is no text; use == or !=`,
		"nodes?filter=status.drivers.exec.healthy==yes": problem + `filter compares status.drivers.exec.healthy with "yes"; give true or false`,
		"operations?filter=status.duration==90":         problem + `filter compares status.duration with "90"; give a duration such as "30s"`,
		"volumes?namespace=a%20b":                       problem + `namespace has the character " "; use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit`,
		"volumes?filter=spec.name==%22x":                problem + `filter has the value "x, which begins with a quote and is no text in quotes; write "text" or 'text'; a quote of the value itself stands in the other quotes`,
		"volumes?filter=spec.name=='x'y'":               problem + `filter has the value 'x'y', which begins with a quote and is no text in quotes; write "text" or 'text'; a quote of the value itself stands in the other quotes`,
		"volumes?per_page=0":                            problem + `per_page is "0"; give a number from 1 to 10000`,
		"volumes?per_page=x&next_token=!":               "the request has 2 problems\n  " + `per_page is "x"; give a number from 1 to 10000` + "\n  " + `next_token is "!"; repeat what the header Berth-Next-Token of the page before says, or leave it out to begin anew`,
		"nodes?namespace=default":                       problem + "namespace is no parameter of this request; use one of index, wait, prefix, filter, per_page, next_token",
		"volumes?filter=id==a%00b":                      problem + "filter has a NUL character; remove it",
		"volumes?prefix=a&prefix=b":                     problem + "prefix is there 2 times; give it once",
	} {
		got := f.get("GET", "/v1/"+path)
		e := got.refusal(t)
		if diff := cmp.Diff(want, e.Error()); diff != "" || got.status != http.StatusBadRequest {
			t.Errorf("%s: %d (-want +got):\n%s", path, got.status, diff)
		}
	}
}

// TestPagesAreTheWholeList, of every noun, whatever its pages' size, and with
// filters that leave pages short.
func TestPagesAreTheWholeList(t *testing.T) {
	t.Parallel()
	f := newFake(t, many, nil)
	for _, list := range []string{
		"volumes?", "volumes?prefix=pg-", "volumes?namespace=a-b", "volumes?filter=id==pg-1", "publications?", "attachments?namespace=a",
		"jobs?", "jobs?prefix=db", "allocations?namespace=b", "nodes?", "plugins?", "plugins?prefix=disk", "instances?", "operations?volume=pg-1",
	} {
		want := ids(t, f.get("GET", "/v1/"+list))
		for size := range 7 {
			var pages []string
			path := fmt.Sprintf("/v1/%s&per_page=%d", list, size+1)
			for token := ""; ; {
				got := f.get("GET", path+"&next_token="+token)
				page := ids(t, got)
				if n := len(strings.Fields(page)); n > size+1 {
					t.Errorf("%s: a page of %d rows", path, n)
				}
				pages = append(pages, strings.Fields(page)...)
				if token = got.header.Get(api.HeaderNext); token == "" {
					break
				}
			}
			if diff := cmp.Diff(want, strings.Join(pages, " ")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		}
	}
	if next := f.get("GET", "/v1/volumes").header.Get(api.HeaderNext); next != "" {
		t.Errorf("a list without pages has a next one: %s", next)
	}
}

// TestPagesUnderWrites: what is there all the time is there once, whatever comes
// and goes between two pages.
func TestPagesUnderWrites(t *testing.T) {
	t.Parallel()
	f := newFake(t, many, nil)
	seen := map[string]int{}
	index := uint64(10)
	for token := ""; ; {
		got := f.get("GET", "/v1/volumes?per_page=2&next_token="+token)
		for id := range strings.FieldsSeq(ids(t, got)) {
			seen[id]++
		}
		index++
		tx := f.store.Begin(index, time.Unix(int64(index), 0))
		for _, id := range []string{"aaa", "pg-0", "zzz"} {
			tx.PutVolume(&api.Volume{Namespace: "a-b", ID: api.VolumeID(fmt.Sprint(id, index))})
		}
		if v := tx.Volume("a-b", "pg-1"); v != nil { // where the second page begins
			tx.DeleteVolume(v)
		}
		tx.Commit()
		if token = got.header.Get(api.HeaderNext); token == "" || index > 100 {
			break
		}
	}
	for _, id := range []string{"a:pg-1", "a:web", "a-b:pg-2", "b:pg", "b:pg-1"} {
		if seen[id] != 1 {
			t.Errorf("%s was in %d pages, want 1", id, seen[id])
		}
	}
}

// TestPageThatFewPassIsShort: a page looks at so many rows and no more, and
// those who read on get there.
func TestPageThatFewPassIsShort(t *testing.T) {
	t.Parallel()
	f := newFake(t, "cluster {}\n", nil)
	tx := f.store.Begin(2, time.Unix(2, 0))
	for i := range 25_000 {
		tx.PutVolume(&api.Volume{Namespace: "default", ID: api.VolumeID(fmt.Sprintf("v%06d", i))})
	}
	tx.Commit()
	path, pages, found := "/v1/volumes?per_page=10&filter=id==v024000", 0, ""
	for token := ""; ; pages++ {
		got := f.get("GET", path+"&next_token="+token)
		found += ids(t, got)
		if token = got.header.Get(api.HeaderNext); token == "" {
			break
		}
	}
	if pages != 1 || found != "default:v024000" {
		t.Errorf("found %q after %d short pages, want it after 1", found, pages)
	}
}

// TestListsOfTheClient: filters, prefixes and pages reach the server.
func TestListsOfTheClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1").provision("pg-1")
		for _, id := range []api.VolumeID{"pg-2", "pg-3", "web"} {
			if _, err := w.ApplyVolume(t.Context(), "default", id, volume(), 0); err != nil {
				t.Fatal(err)
			}
		}
		q := client.Query{Namespace: "*", Prefix: "pg", Filters: []string{client.Where("status.state", "!=", api.VolumeReady)}, Page: &client.Page{Size: 1}}
		var got []api.VolumeID
		for v, err := range client.All(t.Context(), w.Volumes, q) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, v.ID)
		}
		if diff := cmp.Diff([]api.VolumeID{"pg-2", "pg-3"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		page := client.Page{Size: 3}
		if rows, _, err := w.Volumes(t.Context(), client.Query{Page: &page}); err != nil || len(rows) != 3 || page.Next == "" {
			t.Errorf("%d rows (%v), next %q", len(rows), err, page.Next)
		}
		if rows, _, err := w.Volumes(t.Context(), client.Query{Page: &page}); err != nil || len(rows) != 1 || page.Next != "" {
			t.Errorf("then %d rows (%v), next %q", len(rows), err, page.Next)
		}
		for _, err := range client.All(t.Context(), w.Volumes, client.Query{Filters: []string{"x==y"}}) {
			if api.CodeOf(err) != api.CodeInvalid {
				t.Errorf("a filter that is none: %v", err)
			}
		}
	})
}

// FuzzFilter: whatever a filter says, it is read or refused.
func FuzzFilter(f *testing.F) {
	for _, seed := range []string{"status.state==ready", "spec.parameters.a^=b", "a!=", "==", "spec..x==1", "status.drivers.==x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fake := newFake(t, many, nil)
		for _, list := range []string{"volumes", "nodes", "jobs", "operations"} {
			got := fake.get("GET", "/v1/"+list+"?filter="+url.QueryEscape(text))
			if (got.status != http.StatusOK && got.status != http.StatusBadRequest) || !json.Valid([]byte(got.body)) {
				t.Errorf("%s: filter %q answered %d %s", list, text, got.status, got.body)
			}
		}
	})
}
