package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/suggest"
)

// maxUnknown is how many unknown names of a body are told.
const maxUnknown = 20

// unknownNames are all names of a body that its type does not have, each with
// the one that was probably meant; nil if it is no JSON.
func unknownNames(body []byte, t reflect.Type) (fields []api.Field) {
	var value any
	if json.Unmarshal(body, &value) != nil {
		return nil
	}
	walkUnknown(value, t, "", func(path, name string, known []string) {
		if len(fields) == maxUnknown {
			return
		}
		mend := "correct it, or remove it"
		if near := suggest.Nearest(name, known); near != "" {
			mend = "did you mean " + near + "?"
		}
		fields = append(fields, api.Field{Path: path, Message: "is not a known name", Mend: mend})
	})
	return fields
}

// walkUnknown calls found for each name in a value that a type does not have. It
// goes as deep as the type: what the type reads by itself is not looked into.
func walkUnknown(value any, t reflect.Type, path string, found func(path, name string, known []string)) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return
	}
	switch v := value.(type) {
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return
		}
		for i, one := range v {
			walkUnknown(one, t.Elem(), fmt.Sprintf("%s[%d]", path, i), found)
		}
	case map[string]any:
		walkObject(v, t, path, found)
	}
}

func walkObject(object map[string]any, t reflect.Type, path string, found func(path, name string, known []string)) {
	var types map[string]reflect.Type
	switch t.Kind() {
	case reflect.Map:
	case reflect.Struct:
		types = fieldTypes(t)
	default:
		return
	}
	known := slices.Sorted(maps.Keys(types))
	for _, name := range slices.Sorted(maps.Keys(object)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		if t.Kind() == reflect.Map {
			walkUnknown(object[name], t.Elem(), at, found)
			continue
		}
		// Case does not count (encoding/json).
		i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
		if i < 0 {
			found(at, name, known)
			continue
		}
		walkUnknown(object[name], types[known[i]], at, found)
	}
}

// fieldTypes are the types of a struct's fields by their names in JSON, with
// those of embedded structs.
func fieldTypes(t reflect.Type) map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			if embedded.Kind() == reflect.Struct {
				maps.Copy(types, fieldTypes(embedded))
			}
		case f.IsExported() && name != "-":
			if name == "" {
				name = f.Name
			}
			types[name] = f.Type
		}
	}
	return types
}
