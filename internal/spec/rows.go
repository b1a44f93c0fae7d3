package spec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api"
)

// row is one object of a JSON file that holds what the API answers.
type row struct {
	value
	kind string // volume or job
}

// rows are the objects of a JSON file that holds the API's own JSON: a row
// ({"id": ..., "spec": ...}), a list of them, or {"volumes": [...], "jobs":
// [...]}, as the commands print them. They are told from HCL's JSON syntax by
// the object spec, which no block and no attribute is called. Nil if the file
// is none of that.
func (s source) rows() []row {
	if s.json == nil {
		return nil
	}
	var all []row
	take := func(kind string, list ...value) bool {
		for _, v := range list {
			spec := v.member("spec")
			if spec == nil || spec.kind != aMap {
				return false
			}
			one := row{value: v, kind: kind}
			if kind == "" {
				one.kind = "volume"
				if spec.member("groups") != nil {
					one.kind = "job"
				}
			}
			all = append(all, one)
		}
		return true
	}
	v := *s.json
	switch {
	case v.kind == aList && take("", v.list...), v.kind == aMap && take("", v):
		return all
	case v.kind != aMap:
		return nil
	}
	all = nil
	for _, it := range v.items {
		kind := strings.TrimSuffix(it.name, "s")
		if it.name != "volumes" && it.name != "jobs" || it.value.kind != aList || !take(kind, it.value.list...) {
			return nil
		}
	}
	return all
}

// member is the value of a name in an object, or nil.
func (v value) member(name string) *value {
	for i := range v.items {
		if v.items[i].name == name {
			return &v.items[i].value
		}
	}
	return nil
}

// rows reads the API's own JSON. Of a row, its names and its spec count: the
// rest is the system's to write.
func (d *decoder) rows(rows []row) (c contents) {
	for _, r := range rows {
		d := d.object(r.kind)
		switch r.kind {
		case "job":
			var j Job
			ns, id := d.row(r, reflect.TypeFor[api.JobInfo](), &j.Spec)
			j.Namespace, j.ID = ns, api.JobID(id)
			d.validated(j.Spec.Validate(), r.at)
			if id != "" && c.first(d, r.kind, ns, id, item{at: r.at}) {
				c.file.Jobs = append(c.file.Jobs, j)
			}
		default:
			var v Volume
			ns, id := d.row(r, reflect.TypeFor[api.VolumeInfo](), &v.Spec)
			v.Namespace, v.ID = ns, api.VolumeID(id)
			d.validated(v.Spec.Validate(), r.at)
			if id != "" && c.first(d, r.kind, ns, id, item{at: r.at}) {
				c.file.Volumes = append(c.file.Volumes, v)
			}
		}
	}
	return c
}

// row reads the names of a row and its spec, and refuses names that no row has.
func (d *decoder) row(r row, of reflect.Type, spec any) (ns api.NamespaceID, id string) {
	known := members(of)
	for _, it := range r.items {
		switch it.name {
		case "id":
			d.fill("id", it.value, reflect.ValueOf(&id).Elem())
			d.mark("id", it.value.at)
		case "namespace":
			d.fill("namespace", it.value, reflect.ValueOf(&ns).Elem())
			d.mark("namespace", it.value.at)
		case "spec":
			d.mark("", it.value.at)
			d.fill("", it.value, reflect.ValueOf(spec).Elem())
		default:
			if !slices.Contains(known, it.name) {
				d.unknown(it, "", known)
			}
		}
	}
	if at, named := d.ranges["id"]; !named {
		d.fail("id", r.at, "is missing", `add id = "..."`)
	} else if !d.broken["id"] {
		if r.kind == "volume" {
			d.volumeID("id", id, at)
		} else {
			d.name("id", id, at)
		}
	}
	d.namespace(ns)
	return ns, id
}

// members are the names that encoding/json knows of a struct.
func members(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.Anonymous && name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

func (d *decoder) unknown(it item, path string, known []string) {
	mend := "use " + anyOf(known)
	if meant := nearest(it.name, known); meant != "" {
		mend = "did you mean " + meant + "?"
		d.broken[join(path, meant)] = true
	}
	d.fail(join(path, it.name), it.at, "is not a known name", mend)
}

// fill puts a JSON value into a Go value as encoding/json does, but reports all
// problems, and where each path of package api's validators was written.
func (d *decoder) fill(path string, v value, into reflect.Value) {
	if v.kind == aNull || d.own(path, v) {
		return
	}
	if _, own := reflect.TypeAssert[json.Unmarshaler](into.Addr()); own {
		raw, err := json.Marshal(plainJSON(v))
		if err == nil {
			err = json.Unmarshal(raw, into.Addr().Interface())
		}
		if err != nil {
			d.fail(path, v.at, "is "+v.String()+", which cannot be read", `give it as the API does, a duration as "10s"`)
		}
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.fill(path, v, into.Elem())
	case reflect.Struct:
		d.fillStruct(path, v, into)
	case reflect.Slice:
		if !d.is(path, v, aList) {
			return
		}
		list := reflect.MakeSlice(into.Type(), len(v.list), len(v.list))
		for i, e := range v.list {
			at := indexed(path, i)
			if name := e.member("name"); e.kind == aMap && name != nil && name.kind == aString {
				at = keyed(path, name.text)
			}
			d.mark(at, e.at)
			d.fill(at, e, list.Index(i))
		}
		into.Set(list)
	case reflect.Map:
		d.fillMap(path, v, into)
	case reflect.Interface:
		if got := reflect.ValueOf(d.anything(path, v)); got.IsValid() {
			into.Set(got)
		}
	default:
		d.fillScalar(path, v, into)
	}
}

func (d *decoder) fillStruct(path string, v value, into reflect.Value) {
	if !d.is(path, v, aMap) {
		return
	}
	known := members(into.Type())
	seen := map[string]bool{}
	for _, it := range v.items {
		i := slices.IndexFunc(reflect.VisibleFields(into.Type()), func(f reflect.StructField) bool {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return name == it.name && !f.Anonymous
		})
		switch {
		case i < 0:
			d.unknown(it, path, known)
			continue
		case seen[it.name]:
			d.fail(join(path, it.name), it.at, "is there twice", "remove one")
			continue
		}
		seen[it.name] = true
		field := reflect.VisibleFields(into.Type())[i]
		name := it.name
		if t := field.Type; t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
			name = singular(name)
		}
		d.mark(join(path, name), it.value.at)
		d.fill(join(path, name), it.value, into.FieldByIndex(field.Index))
	}
}

// singular is the name of a block of which the API has a list.
func singular(name string) string {
	if stem, ok := strings.CutSuffix(name, "ies"); ok {
		return stem + "y"
	}
	return strings.TrimSuffix(name, "s")
}

func (d *decoder) fillMap(path string, v value, into reflect.Value) {
	if !d.is(path, v, aMap) {
		return
	}
	m := reflect.MakeMap(into.Type())
	for _, it := range v.items {
		e := reflect.New(into.Type().Elem()).Elem()
		d.mark(keyed(path, it.name), it.value.at)
		d.fill(keyed(path, it.name), it.value, e)
		m.SetMapIndex(reflect.ValueOf(it.name).Convert(into.Type().Key()), e)
	}
	into.Set(m)
}

func (d *decoder) fillScalar(path string, v value, into reflect.Value) {
	kinds := map[reflect.Kind]kind{reflect.String: aString, reflect.Bool: aBoolean}
	want, known := kinds[into.Kind()]
	if !known {
		want = aNumber
	}
	if !d.is(path, v, want) {
		return
	}
	raw, err := json.Marshal(plainJSON(v))
	if err == nil {
		err = json.Unmarshal(raw, into.Addr().Interface())
	}
	if err != nil {
		d.fail(path, v.at, "is "+v.String(), fmt.Sprintf("give a whole number that fits %d bits", into.Type().Bits()))
	}
}

// plainJSON is a scalar as encoding/json writes it.
func plainJSON(v value) any {
	if v.kind == aString {
		return v.text
	}
	return json.RawMessage(v.text)
}
