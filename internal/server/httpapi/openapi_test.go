package httpapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/server/httpapi"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// document is the description of the API, as far as these tests read it.
type document struct {
	OpenAPI string
	Info    struct{ Title, Version string }
	Paths   map[string]map[string]*operation

	Components struct {
		Schemas   map[string]*schema
		Responses map[string]any
	}
	text string
}

type operation struct {
	OperationID string `json:"operationId"`
	Summary     string
	Parameters  []struct {
		Name, In, Description string
		Required              bool
		Schema                *schema
	}
	RequestBody struct {
		Content map[string]struct{ Schema *schema }
	} `json:"requestBody"`
	Responses map[string]struct {
		Description string
		Ref         string `json:"$ref"`
		Content     map[string]struct{ Schema *schema }
		Headers     map[string]any
	}
}

type schema struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Format               string
	Properties           map[string]*schema
	AdditionalProperties *schema `json:"additionalProperties"`
	Required             []string
	Items                *schema
	AnyOf                []*schema `json:"anyOf"`
	Minimum, Maximum     *float64
	Description          string
}

func describe(t *testing.T) (document, *fake) {
	t.Helper()
	f := newFake(t, aVolume, nil)
	got := f.get("GET", "/v1/openapi.json")
	var d document
	if err := json.Unmarshal([]byte(got.body), &d); err != nil || got.status != http.StatusOK {
		t.Fatalf("answered %d %s: %v", got.status, got.body, err)
	}
	d.text = got.body
	return d, f
}

// TestEveryRouteIsDescribed: whoever adds a route learns here what it lacks.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	f := newFake(t, aVolume, nil)
	names := map[string]string{}
	for _, rt := range httpapi.Routes(f.Handler) {
		lacks := func(format string, args ...any) {
			t.Errorf("the row %q of the table of routes (routes.go) "+format, append([]any{rt.Pattern}, args...)...)
		}
		method, _, _ := strings.Cut(rt.Pattern, " ")
		if rt.Name == "" || names[rt.Name] != "" {
			lacks("needs a name that no other has, got %q: it is the method of the Go client and the operationId", rt.Name)
		}
		names[rt.Name] = rt.Pattern
		if !regexp.MustCompile(`^[A-Z].*\.$`).MatchString(rt.Doc) {
			lacks("needs doc, a sentence that ends with a full stop, got %q", rt.Doc)
		}
		if rt.Answer == nil && rt.Media == "" {
			lacks("needs answer, a value of the type that it answers, or media, if that is not JSON")
		}
		if (method == http.MethodPut || method == http.MethodPost) && rt.Body == nil && rt.BodyMedia == "" {
			lacks("needs body, a value of the type that it reads, or bodyMedia, if that is not JSON")
		}
		for _, name := range append(rt.Path, rt.Query...) {
			if !slices.Contains(httpapi.Parameters(), name) {
				lacks("takes %q, which func parameters (routes.go) does not describe", name)
			}
		}
	}
}

// TestDescriptionIsOfTheRoutes: it has all of them, and nothing else.
func TestDescriptionIsOfTheRoutes(t *testing.T) {
	t.Parallel()
	d, f := describe(t)
	want, got := map[string]string{}, map[string]string{}
	for _, rt := range httpapi.Routes(f.Handler) {
		method, path, _ := strings.Cut(rt.Pattern, " ")
		want[method+" "+strings.ReplaceAll(path, "...", "")] = fmt.Sprint(rt.Name, " path ", rt.Path, " query ", rt.Query)
	}
	for path, methods := range d.Paths {
		for method, op := range methods {
			in := map[string][]string{}
			for _, p := range op.Parameters {
				in[p.In] = append(in[p.In], p.Name)
			}
			got[strings.ToUpper(method)+" "+path] = fmt.Sprint(op.OperationID, " path ", in["path"], " query ", in["query"])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-) and description (+):\n%s", diff)
	}
}

// TestDescriptionIsOpenAPI: it keeps what OpenAPI 3.1 asks of a document.
func TestDescriptionIsOpenAPI(t *testing.T) {
	t.Parallel()
	d, _ := describe(t)
	if d.OpenAPI != "3.1.0" || d.Info.Title == "" || d.Info.Version != "1.2.3" {
		t.Errorf("it is %q of %+v", d.OpenAPI, d.Info)
	}
	for _, ref := range regexp.MustCompile(`"\$ref":"([^"]*)"`).FindAllStringSubmatch(d.text, -1) {
		name, isSchema := strings.CutPrefix(ref[1], "#/components/schemas/")
		response, isResponse := strings.CutPrefix(ref[1], "#/components/responses/")
		if isSchema && d.Components.Schemas[name] == nil || isResponse && d.Components.Responses[response] == nil || !isSchema && !isResponse {
			t.Errorf("%s leads nowhere", ref[1])
		}
	}
	for name, s := range d.Components.Schemas {
		if !strings.Contains(d.text, `"#/components/schemas/`+name+`"`) {
			t.Errorf("nothing has the schema %s", name)
		}
		checkSchema(t, name, s)
	}
	methods := []string{"get", "put", "post", "delete"}
	for path, ops := range d.Paths {
		template := regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1)
		for method, op := range ops {
			at := method + " " + path
			if !slices.Contains(methods, method) || !strings.HasPrefix(path, "/") {
				t.Errorf("%s is no operation", at)
			}
			var inPath []string
			for _, p := range op.Parameters {
				if p.In == "path" {
					inPath = append(inPath, p.Name)
				}
				if p.Required != (p.In == "path") || p.Description == "" || p.Schema == nil || !slices.Contains([]string{"path", "query", "header"}, p.In) {
					t.Errorf("%s: parameter %+v", at, p)
				}
			}
			for i, m := range template {
				if i >= len(inPath) || inPath[i] != m[1] {
					t.Errorf("%s: parameters %v in the path", at, inPath)
				}
			}
			if op.Responses["200"].Description == "" || op.Responses["default"].Ref != "#/components/responses/Error" {
				t.Errorf("%s: responses %+v", at, op.Responses)
			}
			for _, c := range op.Responses["200"].Content {
				if c.Schema != nil {
					checkSchema(t, at, c.Schema)
				}
			}
		}
	}
}

func checkSchema(t *testing.T, at string, s *schema) {
	t.Helper()
	kinds := []string{"object", "array", "string", "integer", "number", "boolean", "null"}
	for _, kind := range kindsOf(s) {
		if !slices.Contains(kinds, kind) {
			t.Errorf("%s: a %q is no type of JSON", at, kind)
		}
	}
	if slices.Contains(kindsOf(s), "array") && s.Items == nil {
		t.Errorf("%s: a list of nothing", at)
	}
	for _, name := range s.Required {
		if s.Properties[name] == nil {
			t.Errorf("%s: %s is required and not described", at, name)
		}
	}
	for name, p := range s.Properties {
		checkSchema(t, at+"."+name, p)
	}
	for _, inner := range append(s.AnyOf, s.Items, s.AdditionalProperties) {
		if inner != nil {
			checkSchema(t, at, inner)
		}
	}
}

func kindsOf(s *schema) []string {
	switch k := s.Type.(type) {
	case string:
		return []string{k}
	case []any:
		var all []string
		for _, v := range k {
			all = append(all, fmt.Sprint(v))
		}
		return all
	}
	return nil
}

// TestDescriptionIsOfTheTypes: of everything that goes in or out the description
// knows each field, and its kind, and that it is always there if it is. One
// value of each type has all of its fields, the other none.
func TestDescriptionIsOfTheTypes(t *testing.T) {
	t.Parallel()
	d, f := describe(t)
	check := func(what string, like any, s *schema) {
		if like == nil {
			return
		}
		full, empty := reflect.New(reflect.TypeOf(like)), reflect.New(reflect.TypeOf(like))
		statetest.Fill(full.Interface())
		for i := range empty.Elem().NumField() { // what is embedded by pointer is always there
			if field := empty.Elem().Type().Field(i); field.Anonymous && field.Type.Kind() == reflect.Pointer {
				empty.Elem().Field(i).Set(reflect.New(field.Type.Elem()))
			}
		}
		fields := d.check(t, what, s, jsonOf(t, full.Interface()))
		if len(fields) > 0 {
			t.Errorf("%s has no %v, which are described", what, fields)
		}
		d.check(t, what, s, jsonOf(t, empty.Interface()))
	}
	for _, rt := range httpapi.Routes(f.Handler) {
		method, path, _ := strings.Cut(strings.ReplaceAll(rt.Pattern, "...", ""), " ")
		op := d.Paths[path][strings.ToLower(method)]
		check("body of "+rt.Pattern, rt.Body, op.RequestBody.Content["application/json"].Schema)
		answer, s := rt.Answer, op.Responses["200"].Content["application/json"].Schema
		if rt.Media != "" {
			s = op.Responses["200"].Content[rt.Media].Schema
		}
		switch kind := reflect.TypeOf(answer); {
		case kind == nil || kind.Kind() == reflect.Map:
			continue
		case kind.Kind() == reflect.Slice:
			row := kind.Elem()
			if row.Kind() == reflect.Pointer {
				row = row.Elem()
			}
			answer, s = reflect.Zero(row).Interface(), s.Items
		}
		check("answer of "+rt.Pattern, answer, s)
	}
	check("an error", api.Error{}, d.Components.Schemas["Error"])
}

func jsonOf(t *testing.T, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// check compares a value with a schema, and answers the members of it, and of
// all below it, that are described and that it does not have.
func (d document) check(t *testing.T, at string, s *schema, v any) (absent []string) {
	t.Helper()
	if name, found := strings.CutPrefix(s.Ref, "#/components/schemas/"); found {
		s = d.Components.Schemas[name]
	}
	if len(s.AnyOf) > 0 {
		if v == nil {
			return nil
		}
		return d.check(t, at, s.AnyOf[0], v)
	}
	kind := map[reflect.Kind]string{
		reflect.Map: "object", reflect.Slice: "array", reflect.String: "string", reflect.Float64: "number", reflect.Bool: "boolean", reflect.Invalid: "null",
	}[reflect.ValueOf(v).Kind()]
	kinds := kindsOf(s)
	if kind == "number" && slices.Contains(kinds, "integer") {
		kind = "integer"
	}
	if len(kinds) > 0 && !slices.Contains(kinds, kind) {
		t.Errorf("%s is %v, and described as %v", at, v, kinds)
		return nil
	}
	switch v := v.(type) {
	case []any:
		for i, row := range v {
			absent = append(absent, d.check(t, fmt.Sprintf("%s[%d]", at, i), s.Items, row)...)
		}
	case map[string]any:
		if s.AdditionalProperties != nil {
			for k, inner := range v {
				absent = append(absent, d.check(t, at+"."+k, s.AdditionalProperties, inner)...)
			}
			return absent
		}
		if s.Properties == nil {
			return nil
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if s.Properties[k] == nil {
				t.Errorf("%s.%s is not described", at, k)
				continue
			}
			absent = append(absent, d.check(t, at+"."+k, s.Properties[k], v[k])...)
		}
		for k := range s.Properties {
			if _, there := v[k]; !there {
				absent = append(absent, at+"."+k)
				if slices.Contains(s.Required, k) {
					t.Errorf("%s.%s is not always there, and described as if it were", at, k)
				}
			}
		}
	}
	return absent
}

// TestEveryRouteHasAMethod of the Go client, by its name, and every method asks
// for the route of its name.
func TestEveryRouteHasAMethod(t *testing.T) {
	t.Parallel()
	f := newFake(t, aVolume, nil)
	mux, asked := http.NewServeMux(), ""
	for _, rt := range httpapi.Routes(f.Handler) {
		mux.HandleFunc(rt.Pattern, func(w http.ResponseWriter, _ *http.Request) {
			asked = rt.Name
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"code":"conflict","message":"only asked"}`)
		})
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	c, err := client.New(client.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	agent := c.Agent("n1", "secret")
	for _, rt := range httpapi.Routes(f.Handler) {
		method := reflect.ValueOf(c).MethodByName(rt.Name)
		if !method.IsValid() {
			method = reflect.ValueOf(agent).MethodByName(rt.Name)
		}
		if !method.IsValid() {
			t.Errorf("%s has no method %s in api/client: every route is for Go programs too", rt.Pattern, rt.Name)
			continue
		}
		asked = ""
		drain(method.Call(arguments(t, method.Type())))
		if asked != rt.Name {
			t.Errorf("client.%s asks for the route of %q, want %s", rt.Name, asked, rt.Pattern)
		}
	}
}

// arguments are some for a method of the client.
func arguments(t *testing.T, method reflect.Type) []reflect.Value {
	t.Helper()
	var args []reflect.Value
	for i := range method.NumIn() {
		in := method.In(i)
		if method.IsVariadic() && i == method.NumIn()-1 {
			break
		}
		switch {
		case in.String() == "context.Context":
			args = append(args, reflect.ValueOf(t.Context()))
		case in.String() == "io.Reader":
			args = append(args, reflect.ValueOf(strings.NewReader("x")))
		case in.String() == "io.Writer":
			args = append(args, reflect.ValueOf(io.Discard))
		case in.Kind() == reflect.String:
			args = append(args, reflect.ValueOf("x").Convert(in))
		default:
			args = append(args, reflect.Zero(in))
		}
	}
	return args
}

// drain reads to its end what a method answered, if that is to be read.
func drain(results []reflect.Value) {
	for _, r := range results {
		if r.Kind() == reflect.Func && r.Type().CanSeq2() {
			for range r.Seq2() {
			}
		}
		if body, ok := reflect.TypeAssert[io.ReadCloser](r); ok {
			_, _ = io.Copy(io.Discard, body)
			_ = body.Close()
		}
	}
}

// TestDescribedNumbersAreTaken: the least and the greatest number that the
// description has for a parameter is taken, and what is beyond it refused.
func TestDescribedNumbersAreTaken(t *testing.T) {
	t.Parallel()
	d, f := describe(t)
	looked := 0
	for path, methods := range d.Paths {
		op := methods["get"]
		if op == nil || strings.Contains(path, "/agent/") || strings.Contains(path, "{") || path == "/v1/events" {
			continue // what is asked of nobody in particular
		}
		for _, p := range op.Parameters {
			if p.In != "query" || p.Schema.Type != "integer" {
				continue
			}
			ask := func(number float64) string {
				query := fmt.Sprintf("?%s=%d", p.Name, int64(number))
				if p.Name == "index" {
					query += "&wait=0s"
				}
				return strconv.Itoa(f.get("GET", path+query).status)
			}
			looked++
			for bound, step := range map[*float64]float64{p.Schema.Minimum: -1, p.Schema.Maximum: 1} {
				if bound == nil {
					continue
				}
				if got := ask(*bound) + " " + ask(*bound+step); got != "200 400" {
					t.Errorf("%s: %s of %v and of %v is answered %s, want 200 400", path, p.Name, *bound, *bound+step, got)
				}
			}
		}
	}
	if looked < 20 {
		t.Errorf("%d numbers were found, of some 25", looked)
	}
}
