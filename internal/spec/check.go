package spec

import (
	"fmt"

	"github.com/berth-dev/berth/api"
)

var checkTable = &table[api.ServiceCheck]{
	doc: "A check of a service, made by the agent of the node on which the allocation runs, from when its task runs, or all main tasks do. " +
		"`berth alloc status` shows how it is, and the health of updates waits for it. It is about the node's address, as others find it.",
	fields: []field[api.ServiceCheck]{
		choice("type", "tcp: the port takes a connection. http: the answer's status is from 200 to 299; redirects are not followed. script: a command in the task exits with 0.",
			api.CheckTypes(), []string{"grpc"}, func(c *api.ServiceCheck) *api.CheckType { return &c.Type }).validated(`type = "tcp"`),
		text("name", "Tells it from the others of its service.", func(c *api.ServiceCheck) *string { return &c.Name }).standing("the type"),
		text("port", "As in the service, of tcp and http.", func(c *api.ServiceCheck) *string { return &c.Port }).standing("the service's"),
		duration("interval", "How long after the beginning of a probe the next one begins, at least 1s.",
			func(c *api.ServiceCheck) *api.Duration { return &c.Interval }).standing("10s"),
		duration("timeout", "How long a probe may take, at most 30s or the interval. A script that takes longer is killed.",
			func(c *api.ServiceCheck) *api.Duration { return &c.Timeout }).standing("5s"),
		choice("protocol", "Of http.", []string{"http", "https"}, nil, func(c *api.ServiceCheck) *string { return &c.Protocol }).standing("http"),
		text("method", "Of http.", func(c *api.ServiceCheck) *string { return &c.Method }).standing("GET"),
		filledText("path", "/health", "Of http; a query may follow. `${...}` as in a task's config.", func(c *api.ServiceCheck) *string { return &c.Path }).standing("/"),
		header("header", "Of http: a list of values for each name. `${...}` as in a task's config.", func(c *api.ServiceCheck) *map[string][]string { return &c.Header }),
		text("body", "Of http: what is sent.", func(c *api.ServiceCheck) *string { return &c.Body }),
		flag("tls_skip_verify", "Of https: take any certificate.", func(c *api.ServiceCheck) *bool { return &c.TLSSkipVerify }),
		text("tls_server_name", "Of https: whose certificate it must be.", func(c *api.ServiceCheck) *string { return &c.TLSServerName }).standing("the address"),
		filledText("command", "/bin/check", "Of script: a program, as the task finds it. It runs as `berth alloc exec` does: with the task's root, user, environment and limits.",
			func(c *api.ServiceCheck) *string { return &c.Command }),
		filledTexts("args", "Its arguments.", func(c *api.ServiceCheck) *[]string { return &c.Args }),
		text("task", "Where a script runs, and which task check_restart is about.", func(c *api.ServiceCheck) *string { return &c.Task }).
			standing("the service's; of a script also the only main task"),
		choice("initial_status", "How it is before its first probe.", api.CheckStates(), []string{"warning"},
			func(c *api.ServiceCheck) *api.CheckState { return &c.InitialStatus }).standing(string(api.CheckPending)),
		integer("success_before_passing", "How many probes in a row must succeed.", func(c *api.ServiceCheck) *int { return &c.SuccessBeforePassing }).standing("1"),
		integer("failures_before_critical", "How many probes in a row must fail.", func(c *api.ServiceCheck) *int { return &c.FailuresBeforeCritical }).standing("1"),
		choice("on_update", "Whether an allocation is healthy only if it passes.", api.OnUpdates(), []string{"ignore_warnings"},
			func(c *api.ServiceCheck) *api.OnUpdate { return &c.OnUpdate }).standing(string(api.OnUpdateRequire)),
		block("check_restart", "When tasks are started again because of it.", checkRestartTable,
			func(c *api.ServiceCheck) **api.CheckRestart { return &c.Restart }).standing("the service's"),
	},
	foreign: []foreign{
		{names: "address_mode", why: "the address is the node's", unless: "auto host"},
		{names: "failures_before_warning notes", why: "a check passes, is critical, or pending", harmless: true},
		{names: "expose grpc_service grpc_use_tls", why: "nothing would use it"},
	},
}

var checkRestartTable = &table[api.CheckRestart]{
	doc: "Tasks whose check fails are started again as if they had ended: their restart policy counts it, and waits as long as that says. It is the check's task, or all main tasks.",
	fields: []field[api.CheckRestart]{
		integer("limit", "How many probes in a row must fail.", func(r *api.CheckRestart) *int { return &r.Limit }).standing("0, which is never"),
		duration("grace", "How long after a task's start failures are not counted.", func(r *api.CheckRestart) *api.Duration { return &r.Grace }).standing("1s"),
		flag("ignore_warnings", "Do not count a script's exit status 1, nor the HTTP status 429.", func(r *api.CheckRestart) *bool { return &r.IgnoreWarnings }),
	},
}

// nameChecks names the checks that have no name.
func nameChecks(_ *decoder, _ string, _ item, s *api.Service) {
	taken := map[string]bool{}
	for _, c := range s.Checks {
		taken[c.Name] = true
	}
	for i := range s.Checks {
		c := &s.Checks[i]
		if c.Name != "" {
			continue
		}
		c.Name = string(c.Type)
		for n := 2; taken[c.Name]; n++ {
			c.Name = fmt.Sprintf("%s %d", c.Type, n)
		}
		taken[c.Name] = true
	}
}

// header are the headers of a request: lists of strings by names.
func header[T any](name, doc string, at func(*T) *map[string][]string) field[T] {
	return field[T]{name: name, kind: "map of lists of strings", doc: doc, read: func(d *decoder, path string, it item, into *T) {
		values := map[string][]string{}
		for key, v := range d.entries(path, it, keyed) {
			at := keyed(path, key)
			list := []value{v}
			if v.kind == aList {
				list = v.list
			}
			for i, v := range list {
				if d.plain(indexed(at, i), v, `give a list of strings: ["..."]`, aString, aNumber, aBoolean) {
					values[key] = append(values[key], v.text)
				}
			}
		}
		*at(into) = values
	}}
}

// filledTexts is a list of strings in which ${...} may stand.
func filledTexts[T any](name, doc string, at func(*T) *[]string) field[T] {
	return field[T]{name: name, kind: "list of strings", doc: doc, read: func(d *decoder, path string, it item, into *T) {
		if !d.attribute(path, it, name+` = ["..."]`) || !d.oneOf(path, it.value, `give a list of strings: ["..."]`, aList) {
			return
		}
		values := make([]string, 0, len(it.value.list))
		for i, v := range it.value.list {
			if d.plain(indexed(path, i), v, "give a string", aString, aNumber, aBoolean) {
				values = append(values, v.text)
			}
		}
		*at(into) = values
	}}
}
