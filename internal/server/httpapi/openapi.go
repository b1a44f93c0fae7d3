package httpapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
)

// The description of the API, as OpenAPI 3.1, is made from the table of routes
// and the types in it when a handler is made.

// object is an object of JSON.
type object = map[string]any

// description describes routes.
func description(version string, routes []route) ([]byte, error) {
	d := describer{schemas: object{}}
	paths := object{}
	failed := d.schema(reflect.TypeFor[api.Error]())
	for _, rt := range routes {
		method, path := rt.splitPattern()
		at, _ := paths[path].(object)
		if at == nil {
			at = object{}
			paths[path] = at
		}
		at[strings.ToLower(method)] = d.operation(rt)
	}
	b, err := json.Marshal(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Berth", "version": version,
			"description": "What an answer always has is required in it; in a request it may be left out where the zero value is meant. Times are UTC, sizes bytes.",
		},
		"paths": paths,
		"components": object{
			"schemas": d.schemas,
			"responses": object{"Error": object{
				"description": "What went wrong, by a code that tells errors apart.",
				"content":     object{"application/json": object{"schema": failed}},
			}},
			"securitySchemes": object{"node": object{"type": "http", "scheme": "bearer", "description": "The secret of the node whose agent asks."}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("describe the api: %w", err)
	}
	return b, nil
}

// describer collects the schemas of the types that it has met.
type describer struct {
	schemas object
}

// wildcard is a part of a path that a route fills in.
var wildcard = regexp.MustCompile(`\{(\w+)(\.\.\.)?\}`)

// splitPattern is the method and the path of a route, as OpenAPI writes it.
func (rt route) splitPattern() (method, path string) {
	method, path, _ = strings.Cut(rt.pattern, " ")
	return method, wildcard.ReplaceAllString(path, "{$1}")
}

// inPath are the parameters in the path.
func (rt route) inPath() []string {
	var names []string
	for _, m := range wildcard.FindAllStringSubmatch(rt.pattern, -1) {
		names = append(names, m[1])
	}
	return names
}

func (d describer) operation(rt route) object {
	o := object{"operationId": rt.name, "summary": rt.doc}
	var params []object
	for _, name := range rt.inPath() {
		params = append(params, describeParameter(name, "path"))
	}
	for _, name := range rt.query {
		params = append(params, describeParameter(name, "query"))
	}
	if slices.Contains(rt.query, "version") {
		params = append(params, header("If-Match", `The same as the parameter version, as HTTP has it: "12".`))
	}
	if rt.creates {
		params = append(params, header("If-None-Match", "* writes only if there is no such object yet, and answers conflict otherwise."))
	}
	if rt.traced {
		params = append(params, header(api.HeaderTrace, "The caller's span (W3C Trace Context), below which the servers put what comes of the request, where they send traces."))
	}
	if rt.asked {
		params = append(params, header(api.HeaderUser, "Who asks, for the record: at most 64 bytes that can be printed. Nothing checks it."))
	}
	if rt.node {
		o["security"] = []object{{"node": []string{}}}
		params = append(params,
			header(api.HeaderNode, "The node whose agent asks."), header(api.HeaderSession, "The agent's session, once it has one."),
			header(api.HeaderEpoch, "The epoch that the agent knows."))
	}
	if len(params) > 0 {
		o["parameters"] = params
	}
	switch {
	case rt.bodyMedia != "":
		o["requestBody"] = object{"required": true, "content": object{rt.bodyMedia: object{}}}
	case rt.body != nil:
		o["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": d.schema(reflect.TypeOf(rt.body))}}}
	}
	o["responses"] = object{"200": d.done(rt), "default": object{"$ref": "#/components/responses/Error"}}
	return o
}

// done is the answer of a route that did what was asked.
func (d describer) done(rt route) object {
	media, content := rt.media, object{}
	if rt.answer != nil {
		content["schema"] = d.schema(reflect.TypeOf(rt.answer))
	}
	if media == "" {
		media = "application/json"
	}
	answer := object{"description": "It was done.", "content": object{media: content}}
	headers := object{}
	if slices.Contains(rt.query, "wait") {
		headers[api.HeaderIndex] = object{"description": "The index of the answer, to poll with.", "schema": object{"type": "integer"}}
	}
	if slices.Contains(rt.query, "per_page") {
		headers[api.HeaderNext] = object{"description": "The token of the next page; the last page has none.", "schema": object{"type": "string"}}
	}
	if len(headers) > 0 {
		answer["headers"] = headers
	}
	return answer
}

func describeParameter(name, in string) object {
	p := parameters()[name]
	schema := object{"type": "string"}
	if p.number {
		schema = object{"type": "integer"}
		if !p.signed {
			schema["minimum"] = p.least
		}
		if p.most > 0 {
			schema["maximum"] = p.most
		}
	}
	if p.many {
		schema = object{"type": "array", "items": schema}
	}
	o := object{"name": name, "in": in, "description": p.doc, "schema": schema}
	if in == "path" {
		o["required"] = true
	}
	return o
}

func header(name, doc string) object {
	return object{"name": name, "in": "header", "description": doc, "schema": object{"type": "string"}}
}

// schema is the schema of a type's JSON. Structs with a name have theirs among
// the components.
func (d describer) schema(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[api.Duration]():
		return object{"type": "string", "description": `A duration such as "1m30s".`}
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.Struct:
		if _, known := d.schemas[t.Name()]; !known {
			d.schemas[t.Name()] = nil // while it is made, for types that contain themselves
			d.schemas[t.Name()] = d.members(t)
		}
		return object{"$ref": "#/components/schemas/" + t.Name()}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Slice, reflect.Array:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return object{"type": "number"}
	}
	return object{} // any value
}

// members is the schema of a struct. What is embedded is a part of it.
func (d describer) members(t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "-" || name == "" {
			continue
		}
		schema := d.schema(f.Type)
		if strings.Contains(options, "omit") {
			properties[name] = schema
			continue
		}
		required = append(required, name)
		switch f.Type.Kind() {
		case reflect.Slice, reflect.Map:
			if kind, known := schema["type"]; known {
				schema["type"] = []any{kind, "null"}
			}
		case reflect.Pointer:
			schema = object{"anyOf": []object{schema, {"type": "null"}}}
		}
		properties[name] = schema
	}
	o := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

func (h *Handler) openAPI(*request) (any, error) { return h.described, nil }
