package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// live lists what a running process takes over when its configuration is read
// again: whole blocks, or single fields. All else needs a restart.
func live() []string {
	return []string{
		"log_level",
		"server.plugin", "server.keep", "server.sweep_interval",
		"client.class", "client.meta", "client.address", "client.cpu", "client.memory",
		"host_volume",
		"driver.enabled", "driver.allow_privileged", "driver.allow_host_paths", "driver.allow_caps",
		"driver.auth_file", "driver.image_delay", "driver.keep_images",
	}
}

// Change is what differs between two configurations, by the paths of fields.
type Change struct {
	// Live is what a running process can take over, and Restart what it cannot.
	Live, Restart []string
}

// Reload is the configuration with what a running process can take over of the
// next one, and says what differs. Neither is changed, and the answer shares
// nothing with them. Both are complete.
func (c Config) Reload(next Config) (Config, Change) {
	var change Change
	merged := clone(reflect.ValueOf(c)).Interface().(Config)
	fresh := clone(reflect.ValueOf(next)).Interface().(Config)
	change.drivers(&merged, &fresh)
	change.compare("", reflect.ValueOf(&merged).Elem(), reflect.ValueOf(fresh))
	slices.Sort(change.Live)
	slices.Sort(change.Restart)
	return merged, change
}

// drivers compares what is said of the task drivers, one by one: what jobs may is
// live. No block is one that says nothing. The blocks are the same in both then.
func (ch *Change) drivers(into, next *Config) {
	var all []Driver
	for _, name := range []string{driverExec, driverRawExec, driverDocker} {
		was, is := into.Driver(name), next.Driver(name)
		label := fmt.Sprintf("driver[%q]", name)
		of := Change{}
		of.compare("driver", reflect.ValueOf(&was).Elem(), reflect.ValueOf(is))
		for _, at := range of.Live {
			ch.Live = append(ch.Live, label+strings.TrimPrefix(at, "driver"))
		}
		for _, at := range of.Restart {
			ch.Restart = append(ch.Restart, label+strings.TrimPrefix(at, "driver"))
		}
		if was.says() {
			all = append(all, was)
		}
	}
	into.Drivers, next.Drivers = all, all
}

// compare notes what differs between two blocks at a path, and takes over what
// is live.
func (ch *Change) compare(path string, into, next reflect.Value) {
	t := into.Type()
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("hcl"), ",")
		if tag == "" {
			continue
		}
		at, was, is := join(path, tag), into.Field(i), next.Field(i)
		switch {
		case reflect.DeepEqual(was.Interface(), is.Interface()):
		case slices.Contains(live(), at):
			ch.Live = append(ch.Live, at)
			was.Set(is)
		case was.Kind() == reflect.Pointer && was.Type().Elem().Kind() == reflect.Struct && !was.IsNil() && !is.IsNil():
			ch.compare(at, was.Elem(), is.Elem())
		case was.Kind() == reflect.Slice && was.Type().Elem().Kind() == reflect.Struct:
			ch.labelled(at, was, is)
		default:
			ch.Restart = append(ch.Restart, at)
		}
	}
}

// labelled notes which of the blocks with labels differ. A driver of two programs
// has two blocks of one label.
func (ch *Change) labelled(path string, was, is reflect.Value) {
	blocks := func(list reflect.Value) map[string][]any {
		all := map[string][]any{}
		for i := range list.Len() {
			label := fmt.Sprintf("%s[%q]", path, list.Index(i).Field(0).String())
			all[label] = append(all[label], list.Index(i).Interface())
		}
		return all
	}
	before, after := blocks(was), blocks(is)
	for label, b := range before {
		if !reflect.DeepEqual(b, after[label]) {
			ch.Restart = append(ch.Restart, label)
		}
	}
	for label := range after {
		if before[label] == nil {
			ch.Restart = append(ch.Restart, label)
		}
	}
}

// clone copies a value with all that it points to. What is nil stays nil, and
// what is empty stays empty.
func clone(v reflect.Value) reflect.Value {
	into := reflect.New(v.Type()).Elem()
	into.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			into.Set(reflect.New(v.Type().Elem()))
			into.Elem().Set(clone(v.Elem()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				into.Field(i).Set(clone(v.Field(i)))
			}
		}
	case reflect.Slice:
		if !v.IsNil() {
			into.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				into.Index(i).Set(clone(v.Index(i)))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			into.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
			for it := v.MapRange(); it.Next(); {
				into.SetMapIndex(it.Key(), clone(it.Value()))
			}
		}
	}
	return into
}
