package httpapi

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/api"
)

// admit refuses what no route takes, before anything is looked at.
func (h *Handler) admit(r *request, rt route) error {
	if err := h.fromOwnPages(r); err != nil {
		return err
	}
	if err := r.readQuery(rt); err != nil {
		return err
	}
	return r.readConditions(rt)
}

// readConditions reads the headers that make a write conditional, and refuses
// those that the route cannot heed: a write must not become unconditional.
func (r *request) readConditions(rt route) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil // they are a cache's
	}
	var p api.Problems
	if none := r.Header.Values("If-None-Match"); len(none) > 0 {
		switch r.ifAbsent = true; {
		case !rt.creates:
			p.Add("If-None-Match", "is given, and nothing is created here", "leave it out")
		case len(none) > 1 || none[0] != "*":
			p.Addf("If-None-Match", "write If-None-Match: *", "is %q", strings.Join(none, ", "))
		case r.query.Has("version") || r.Header.Get("If-Match") != "":
			p.Add("If-None-Match", "is given, and so is a version, which only what is there can have", "leave one of them out")
		}
	}
	if match := r.Header.Values("If-Match"); len(match) > 0 {
		version := strings.Trim(strings.Join(match, ","), `"`)
		switch _, err := strconv.ParseUint(version, 10, 64); {
		case !slices.Contains(rt.query, "version"):
			p.Add("If-Match", "is given, and the write cannot be made to depend on a version", "leave it out")
		case err != nil || version == "0":
			p.Addf("If-Match", `give the object's version: If-Match: "12"`, "is %q", strings.Join(match, ","))
		case r.query.Has("version") && r.query.Get("version") != version:
			p.Addf("If-Match", "leave one of them out", "is %s, and the parameter version is %s", version, r.query.Get("version"))
		default:
			r.query.Set("version", version)
		}
	}
	return p.Err("the request")
}

// fromOwnPages refuses what a web page of somebody else sends through the
// browser of an operator. Nothing else stands between such a page and an API
// that listens on the operator's machine. A page may also have pointed a name
// of its own at this machine, to look as if it came from here: then the name
// that it asks for tells.
func (h *Handler) fromOwnPages(r *request) error {
	if err := new(http.CrossOriginProtection).Check(r.Request); err != nil {
		return api.Errorf(api.CodeForbidden, "a web page of another site sent this: %v", err)
	}
	if h.Local && !ownName(r.Host) {
		return api.Errorf(api.CodeForbidden,
			"the API listens on this machine only, and was asked for as %q: use its address or localhost, also in the Host header of a proxy", r.Host)
	}
	return nil
}

// ownName reports whether a Host header is one that no other site can have.
func ownName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return net.ParseIP(host) != nil || host == "localhost"
}

// readQuery reads the parameters, and refuses those that the route does not
// know: a condition that is misspelled must not make a write unconditional.
// The state's keys are joined with NUL, so no name in a request has one.
func (r *request) readQuery(rt route) error {
	var p api.Problems
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		p.Add("query", "cannot be read: "+err.Error(), "escape what stands in it")
	}
	if strings.ContainsRune(r.URL.Path, 0) {
		p.Add("path", "has a NUL character", "remove it")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch values := query[name]; {
		case !slices.Contains(rt.query, name):
			p.Add(name, "is no parameter of this request", knownParameters(rt.query))
		case len(values) > 1 && !parameters()[name].many:
			p.Addf(name, "give it once", "is there %d times", len(values))
		case slices.ContainsFunc(values, func(s string) bool { return strings.ContainsRune(s, 0) }):
			p.Add(name, "has a NUL character", "remove it")
		}
	}
	r.query = query
	return p.Err("the request")
}

func knownParameters(names []string) string {
	if len(names) == 0 {
		return "remove it: the request takes none"
	}
	return fmt.Sprintf("use one of %s", strings.Join(names, ", "))
}
