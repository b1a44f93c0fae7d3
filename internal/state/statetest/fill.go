package statetest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Fill gives every field below v, which is a pointer, a value that is not
// zero, always the same, and that tells it from its neighbours: strings are
// their field's name. Golden files are made of such values, so that none of
// them lacks a field.
func Fill(v any) {
	f := filler{}
	f.fill(reflect.ValueOf(v).Elem(), "value")
}

// filler counts, so that numbers and times differ.
type filler struct{ n int64 }

func (f *filler) fill(v reflect.Value, name string) {
	f.n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(Now().Add(time.Duration(f.n) * time.Second)))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`"` + name + `"`))
		return
	case []byte:
		v.SetBytes([]byte(name))
		return
	case time.Duration:
		v.SetInt(int64(time.Duration(f.n) * time.Second))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(name)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(f.n)
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n)) //nolint:gosec // a small count
	case reflect.Interface:
		v.Set(reflect.ValueOf(name))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0), name)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, name)
		f.fill(value, name)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i), jsonName(v.Type().Field(i)))
		}
	default:
		panic(fmt.Sprintf("fill %s: no value for a %s", name, v.Type()))
	}
}

// Empty names the fields below v that are zero, by their path in JSON. It is
// how a test finds the field that a golden file does not know.
func Empty(v any) []string { return empty(reflect.ValueOf(v), "") }

func empty(v reflect.Value, path string) []string {
	if !v.IsValid() || v.IsZero() {
		return []string{path}
	}
	if _, ok := reflect.TypeAssert[time.Time](v); ok {
		return nil
	}
	var all []string
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return empty(v.Elem(), path)
	case reflect.Slice:
		for i := range v.Len() {
			all = append(all, empty(v.Index(i), path)...)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			all = append(all, empty(v.MapIndex(k), path)...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			at := path
			if !field.Anonymous {
				at = strings.TrimPrefix(path+"."+jsonName(field), ".")
			}
			all = append(all, empty(v.Field(i), at)...)
		}
	}
	return all
}

// jsonName is the name of a field in JSON, or of its struct if that has none.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" {
		return strings.ToLower(f.Name)
	}
	return name
}
