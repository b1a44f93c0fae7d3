package fit_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// changeLines are changes as people read them.
func changeLines(changes []api.Change) string {
	var b strings.Builder
	for _, c := range changes {
		sign := map[api.ChangeKind]string{api.Added: "+", api.Removed: "-", api.Changed: "~"}[c.Kind]
		fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("%s %s %s > %s", sign, c.Path, c.Old, c.New), " >"))
	}
	return b.String()
}

func readSpec[T any](t *testing.T, text string) T {
	t.Helper()
	var s T
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return s
}

// TestDiff: named things are compared by name, all others by their place.
func TestDiff(t *testing.T) {
	t.Parallel()
	group := func(more string) string { return `{"type":"service","groups":[{"name":"db","count":1` + more + `}]}` }
	task := func(more string) string { return group(`,"tasks":[{"name":"pg","driver":"exec"` + more + `}]`) }
	for name, tc := range map[string]struct{ old, changed, want string }{
		"Same":           {task(""), task(""), ""},
		"EmptyIsNothing": {group(`,"volumes":[]`), group(""), ""},
		"Field":          {group(""), strings.Replace(group(""), `"count":1`, `"count":3`, 1), "~ group[\"db\"].count 1 > 3\n"},
		"FieldComes":     {task(""), task(`,"user":"postgres"`), "+ group[\"db\"].task[\"pg\"].user  > \"postgres\"\n"},
		"FieldGoes":      {`{"type":"service","priority":70,"groups":[]}`, `{"type":"batch","groups":[]}`, "~ type \"service\" > \"batch\"\n- priority 70\n"},
		"Duration":       {task(`,"kill_timeout":"5s"`), task(`,"kill_timeout":"1m0s"`), "~ group[\"db\"].task[\"pg\"].kill_timeout \"5s\" > \"1m0s\"\n"},
		"Text": {
			task(`,"env":{"A":"1","B":"2"}`), task(`,"env":{"B":"3","C":"<&>"}`),
			"- group[\"db\"].task[\"pg\"].env[\"A\"] \"1\"\n~ group[\"db\"].task[\"pg\"].env[\"B\"] \"2\" > \"3\"\n+ group[\"db\"].task[\"pg\"].env[\"C\"]  > \"<&>\"\n",
		},
		"Config": {
			task(`,"config":{"args":["a","b"],"limits":{"a b":1}}`), task(`,"config":{"args":["a","c","d"],"limits":{"a b":2},"command":"x"}`),
			"~ group[\"db\"].task[\"pg\"].config.args[1] \"b\" > \"c\"\n+ group[\"db\"].task[\"pg\"].config.args[2]  > \"d\"\n" +
				"+ group[\"db\"].task[\"pg\"].config.command  > \"x\"\n~ group[\"db\"].task[\"pg\"].config.limits[\"a b\"] 1 > 2\n",
		},
		"ConfigOfNamedThings": {
			task(`,"config":{"mounts":[{"name":"a","size":1},{"name":"b","size":2}]}`), task(`,"config":{"mounts":[{"name":"b","size":3}]}`),
			"- group[\"db\"].task[\"pg\"].config.mounts[\"a\"]\n- group[\"db\"].task[\"pg\"].config.mounts[\"a\"].size 1\n" +
				"~ group[\"db\"].task[\"pg\"].config.mounts[\"b\"].size 2 > 3\n",
		},
		"ConfigOfAnotherKind":  {task(`,"config":{"x":[1]}`), task(`,"config":{"x":{"y":1}}`), "~ group[\"db\"].task[\"pg\"].config.x [1] > {\"y\":1}\n"},
		"ConfigEmptyOrNothing": {task(`,"config":{"x":[],"y":1}`), task(`,"config":{"y":1}`), "- group[\"db\"].task[\"pg\"].config.x []\n"},
		"ConfigNullOrNothing":  {task(`,"config":{"x":null,"y":1}`), task(`,"config":{"y":1}`), "~ group[\"db\"].task[\"pg\"].config {\"x\":null,\"y\":1} > {\"y\":1}\n"},
		"BlockComes": {
			group(""), group(`,"volumes":[{"name":"data","type":"csi","source":"pg","access_mode":"x","attachment_mode":"y","mount_options":{"mount_flags":["ro"]}}]`),
			`+ group["db"].volume["data"]
+ group["db"].volume["data"].type  > "csi"
+ group["db"].volume["data"].source  > "pg"
+ group["db"].volume["data"].access_mode  > "x"
+ group["db"].volume["data"].attachment_mode  > "y"
+ group["db"].volume["data"].mount_options
+ group["db"].volume["data"].mount_options.mount_flags[0]  > "ro"
`,
		},
		"BlockGoes": {
			task(""), `{"type":"service","groups":[]}`,
			"- group[\"db\"]\n- group[\"db\"].count 1\n- group[\"db\"].task[\"pg\"]\n- group[\"db\"].task[\"pg\"].driver \"exec\"\n",
		},
		"BlockIsRenamed": {
			`{"type":"service","groups":[{"name":"a","count":1,"tasks":null}]}`, `{"type":"service","groups":[{"name":"b","count":1,"tasks":null}]}`,
			"- group[\"a\"]\n- group[\"a\"].count 1\n+ group[\"b\"]\n+ group[\"b\"].count  > 1\n",
		},
		"OrderOfNamedThings": {
			`{"type":"service","groups":[{"name":"a","count":1,"tasks":[]},{"name":"b","count":1,"tasks":[]}]}`,
			`{"type":"service","groups":[{"name":"b","count":1,"tasks":[]},{"name":"c","count":1,"tasks":null},{"name":"a","count":2,"tasks":[]}]}`,
			"~ group [\"a\",\"b\"] > [\"b\",\"c\",\"a\"]\n~ group[\"a\"].count 1 > 2\n+ group[\"c\"]\n+ group[\"c\"].count  > 1\n",
		},
		"Places": {
			`{"type":"service","constraints":[{"attribute":"a","value":"1"},{"operator":"distinct_hosts"}],"groups":[]}`,
			`{"type":"service","constraints":[{"attribute":"a","value":"2"}],"groups":[]}`,
			"~ constraint[0].value \"1\" > \"2\"\n- constraint[1]\n- constraint[1].operator \"distinct_hosts\"\n",
		},
		"Targets": {
			group(`,"spreads":[{"attribute":"a","targets":[{"value":"x","percent":50}]}]`), group(`,"spreads":[{"attribute":"a","targets":[{"value":"x","percent":60}]}]`),
			"~ group[\"db\"].spread[0].target[\"x\"].percent 50 > 60\n",
		},
		"TwoOfOneName": {
			`{"type":"service","groups":[{"name":"a","count":1,"tasks":[]},{"name":"a","count":2,"tasks":[]}]}`,
			`{"type":"service","groups":[{"name":"a","count":1,"tasks":[]}]}`,
			"- group[1]\n- group[1].name \"a\"\n- group[1].count 2\n- group[1].task []\n",
		},
	} {
		got := changeLines(fit.Diff(readSpec[api.JobSpec](t, tc.old), readSpec[api.JobSpec](t, tc.changed)))
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestDiffOfVolumes: it is not only for jobs.
func TestDiffOfVolumes(t *testing.T) {
	t.Parallel()
	old := api.VolumeSpec{PluginID: "disk", Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter}}}
	changed := api.VolumeSpec{
		PluginID: "disk", Name: "the database", Capabilities: []api.Capability{{AccessMode: api.MultiNodeReaderOnly}},
		TopologyRequest: &api.TopologyRequest{Required: []api.Topology{{"zone": "a"}}},
	}
	want := `+ name  > "the database"
~ capability[0].access_mode "single-node-writer" > "multi-node-reader-only"
+ topology_request
+ topology_request.required[0]
+ topology_request.required[0]["zone"]  > "a"
`
	if diff := cmp.Diff(want, changeLines(fit.Diff(old, changed))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDiffSeesEveryField, also those that are added to a spec later: whatever
// is taken away is one removal, and nothing else.
func TestDiffSeesEveryField(t *testing.T) {
	t.Parallel()
	seesEveryField[api.JobSpec](t)
	seesEveryField[api.VolumeSpec](t)
}

func seesEveryField[T any](t *testing.T) {
	t.Helper()
	var whole T
	fill(reflect.ValueOf(&whole).Elem())
	if got := fit.Diff(whole, whole); len(got) > 0 {
		t.Errorf("%T differs from itself:\n%s", whole, changeLines(got))
	}
	fields := 0
	var visit func(v reflect.Value, path string)
	visit = func(v reflect.Value, path string) {
		switch v.Kind() {
		case reflect.Pointer:
			visit(v.Elem(), path)
			return
		case reflect.Slice:
			for i := range v.Len() {
				visit(v.Index(i), path)
			}
			return
		case reflect.Struct:
			for i := range v.NumField() {
				f := v.Type().Field(i)
				name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
				visit(v.Field(i), path+"."+name)
				kept := reflect.ValueOf(v.Field(i).Interface())
				v.Field(i).SetZero()
				without := clone(t, whole)
				v.Field(i).Set(kept)
				got := fit.Diff(clone(t, whole), without)
				fields++
				if len(got) == 0 {
					t.Errorf("%T: nothing is seen of %s%s", whole, path, "."+name)
				}
				for _, c := range got {
					if strings.Contains(options, "omit") && name != "value" && c.Kind != api.Removed {
						t.Errorf("%T without %s.%s has %s, want only removals", whole, path, name, changeLines([]api.Change{c}))
					}
				}
			}
		}
	}
	visit(reflect.ValueOf(&whole), "")
	if fields < 5 {
		t.Errorf("%T has %d fields: the test does not find them", whole, fields)
	}
}

// fill gives every field a value that is not zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(7)
	case reflect.String:
		v.SetString("text")
	case reflect.Interface:
		v.Set(reflect.ValueOf("text"))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for _, f := range v.Fields() {
			fill(f)
		}
	default:
		panic("no value for a " + v.Type().String())
	}
}

// clone is a value that shares nothing with another.
func clone[T any](t *testing.T, v T) T {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return readSpec[T](t, string(b))
}

// TestDiffIsEmptyForWhatIsTheSame, and only for that: a plan without changes
// is one that changes nothing.
func TestDiffIsEmptyForWhatIsTheSame(t *testing.T) {
	t.Parallel()
	word := rapid.SampledFrom([]string{"a", "b", "c"})
	count := rapid.IntRange(0, 2)
	tasks := rapid.Custom(func(t *rapid.T) api.Task {
		return api.Task{
			Name: word.Draw(t, "task"), Driver: word.Draw(t, "driver"), Env: rapid.MapOfN(word, word, 0, 2).Draw(t, "env"),
			Config: rapid.MapOfN(word, rapid.OneOf(
				rapid.Just[any](nil), rapid.Just[any]("x"), rapid.Just[any](1.5), rapid.Just[any]([]any{"x", "y"}), rapid.Just[any]([]any{}),
				rapid.Just[any]([]any{map[string]any{"name": "x"}, map[string]any{"name": "y"}}),
				rapid.Just[any]([]any{map[string]any{"name": "y"}, map[string]any{"name": "x"}}), rapid.Just[any](map[string]any{"x": nil}),
			), 0, 2).Draw(t, "config"),
		}
	})
	groups := rapid.Custom(func(t *rapid.T) api.TaskGroup {
		return api.TaskGroup{
			Name: word.Draw(t, "group"), Count: count.Draw(t, "count"), Tasks: rapid.SliceOfN(tasks, 1, 2).Draw(t, "tasks"),
			Constraints: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) api.Constraint {
				return api.Constraint{Attribute: word.Draw(t, "attribute"), Value: word.Draw(t, "value")}
			}), 0, 2).Draw(t, "constraints"),
		}
	})
	specs := rapid.Custom(func(t *rapid.T) api.JobSpec {
		return api.JobSpec{Type: api.JobService, Groups: rapid.SliceOfN(groups, 1, 3).Draw(t, "groups")}
	})
	rapid.Check(t, func(t *rapid.T) {
		old, changed := specs.Draw(t, "old"), specs.Draw(t, "changed")
		if got := fit.Diff(old, changed); (len(got) == 0) != fit.Same(old, changed) {
			t.Fatalf("same: %v, and changes\n%s", fit.Same(old, changed), changeLines(got))
		}
		if got := fit.Diff(old, old); len(got) > 0 {
			t.Fatalf("differs from itself:\n%s", changeLines(got))
		}
	})
}
