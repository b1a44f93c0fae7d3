package fit_test

import (
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

func TestConstraint(t *testing.T) {
	t.Parallel()
	node := &api.Node{ID: "db1-1234abcd", Name: "db1", Status: api.NodeStatus{Profile: api.Profile{
		Class: "fast", Meta: map[string]string{"rack": "r1", "disks": "nvme, sata"},
		Attributes: map[string]string{"kernel.version": "6.1.0-13-amd64", "cpu.numcores": "16", "cpu.arch": "amd64"},
	}}}
	for _, tc := range []struct {
		attribute string
		op        api.Operator
		value     string
		want      string
	}{
		{"${attr.cpu.arch}", "", "amd64", ""},
		{"${attr.cpu.arch}", "=", "arm64", `constraint ${attr.cpu.arch} = arm64: the node has "amd64"`},
		{"${attr.cpu.arch}", "!=", "arm64", ""},
		{"${attr.cpu.arch}", "!=", "amd64", `constraint ${attr.cpu.arch} != amd64: the node has "amd64"`},
		{"${meta.zone}", "!=", "a", ""},
		{"${meta.zone}", "=", "a", "constraint ${meta.zone} = a: the node has no ${meta.zone}"},
		{"${meta.zone}", "is_set", "", "constraint ${meta.zone} is_set: the node has no ${meta.zone}"},
		{"${meta.zone}", "is_not_set", "", ""},
		{"${meta.rack}", "is_not_set", "", `constraint ${meta.rack} is_not_set: the node has "r1"`},
		{"${meta.rack}", "distinct_property", "", ""},
		{"${meta.zone}", "distinct_property", "2", "constraint ${meta.zone} distinct_property 2: the node has no ${meta.zone}"},
		{"", "distinct_hosts", "", ""},
		{"${attr.cpu.numcores}", ">=", "8", ""}, // as text it would not be
		{"${attr.cpu.numcores}", "<", "9", `constraint ${attr.cpu.numcores} < 9: the node has "16"`},
		{"${attr.cpu.numcores}", "<=", "16.0", ""},
		{"${attr.kernel.version}", ">", "6.1", ""},
		{"${attr.kernel.version}", ">=", "5.15.2", ""},
		{"${attr.kernel.version}", ">", "6.12", `constraint ${attr.kernel.version} > 6.12: the node has "6.1.0-13-amd64"`},
		{"${attr.kernel.version}", "regexp", `^6\.1\.`, ""},
		{"${attr.kernel.version}", "regexp", "arm", `constraint ${attr.kernel.version} regexp arm: the node has "6.1.0-13-amd64"`},
		{"${meta.disks}", "set_contains", "sata,nvme", ""},
		{"${meta.disks}", "set_contains", "sata,tape", `constraint ${meta.disks} set_contains sata,tape: the node has "nvme, sata"`},
		{"${meta.disks}", "set_contains_any", "tape,sata", ""},
		{"${meta.disks}", "set_contains_any", "tape", `constraint ${meta.disks} set_contains_any tape: the node has "nvme, sata"`},
		{"${node.class}", "=", "fast", ""},
		{"${node.unique.name}", "=", "db1", ""},
		{"${node.unique.id}", "=", "db1-1234abcd", ""},
	} {
		c := api.Constraint{Attribute: tc.attribute, Operator: tc.op, Value: tc.value}
		if got := fit.Constraint(node, c); got != tc.want {
			t.Errorf("%s: got %q, want %q", c, got, tc.want)
		}
	}
}

func TestSpreadShare(t *testing.T) {
	t.Parallel()
	even := &api.Spread{Attribute: "${meta.rack}"}
	shares := &api.Spread{Attribute: "${meta.rack}", Targets: []api.SpreadTarget{{Value: "r1", Percent: 50}}}
	racks := []string{"r1", "r2", "r3"}
	for name, tc := range map[string]struct {
		spread        *api.Spread
		has           map[string]int
		better, worse string
	}{
		"EmptyFirst":        {even, map[string]int{"r1": 1}, "r2", "r1"},
		"LessFirst":         {even, map[string]int{"r1": 2, "r2": 1, "r3": 2}, "r2", "r3"},
		"TargetHasMore":     {shares, map[string]int{"r1": 1, "r2": 1, "r3": 1}, "r1", "r2"},
		"TargetIsReached":   {shares, map[string]int{"r1": 3, "r2": 1, "r3": 1}, "r3", "r1"},
		"OthersShareEvenly": {shares, map[string]int{"r1": 2, "r2": 1}, "r3", "r2"},
	} {
		better := fit.SpreadShare(tc.spread, tc.better, tc.has, 6, racks)
		worse := fit.SpreadShare(tc.spread, tc.worse, tc.has, 6, racks)
		if better >= worse {
			t.Errorf("%s: %s has %g and %s %g", name, tc.better, better, tc.worse, worse)
		}
	}
}
