package spec

import "github.com/berth-dev/berth/api"

// constraints is the block by which jobs, groups and tasks choose nodes.
func constraints[T any](of string, at func(*T) *[]api.Constraint) field[T] {
	return blocks("constraint", "A condition that a node must meet to run the "+of+"; one block for each.", constraintTable, at)
}

func spreads[T any](at func(*T) *[]api.Spread) field[T] {
	return blocks("spread", "Over the values of what the allocations are to be spread; one block for each.", spreadTable, at)
}

func metadata[T any](at func(*T) *map[string]string) field[T] {
	return textMap("meta", "Anything of the user's own. Tasks find it in their environment, as BERTH_META_<key>.", false, at)
}

var constraintTable = &table[api.Constraint]{
	doc: "A condition that a node must meet.",
	fields: []field[api.Constraint]{
		reference("attribute", "What of the node is compared: ${attr.cpu.arch} and other attributes that agents find, ${meta.rack} and other metadata of their "+
			"configuration, ${node.class}, ${node.unique.name}, ${node.unique.id}. `berth node status` shows them.",
			func(c *api.Constraint) *string { return &c.Attribute }),
		choice("operator", "How it is compared. Numbers are compared as numbers, and other values part by part, as versions.", api.Operators(),
			[]string{"version", "semver"}, func(c *api.Constraint) *api.Operator { return &c.Operator }).standing(string(api.Equal)),
		text("value", "What it is compared with.", func(c *api.Constraint) *string { return &c.Value }),
		flag("distinct_hosts", "Instead of the others: no two allocations on a node. In a group it counts the group's, in a job the job's.",
			func(*api.Constraint) *bool { return new(bool) }).sets(func(c *api.Constraint, v value) {
			if v.text == "true" {
				c.Operator = api.DistinctHosts
			}
		}),
		reference("distinct_property", "Instead of attribute and operator: at most as many as value says, one if it is not there, where this is the same.",
			func(*api.Constraint) *string { return new(string) }).sets(func(c *api.Constraint, v value) {
			c.Operator, c.Attribute = api.DistinctProperty, v.text
		}),
	},
	foreign: []foreign{
		{names: "regexp set_contains set_contains_any version semver", why: "use operator and value"},
	},
	// Nomad has it with a value, too.
	finish: func(_ *decoder, _ string, _ item, c *api.Constraint) {
		if c.Operator == api.DistinctHosts && c.Value == "true" {
			c.Value = ""
		}
	},
}

var spreadTable = &table[api.Spread]{
	doc: "A wish to spread allocations over the values of an attribute. It excludes no node.",
	fields: []field[api.Spread]{
		reference("attribute", "What of the nodes differs: as in a constraint.",
			func(s *api.Spread) *string { return &s.Attribute }).required(`attribute = "${meta.rack}"`),
		named("target", "The share of one value, which is the block's name. Values that are not named share the rest evenly.", targetTable,
			func(s *api.Spread) *[]api.SpreadTarget { return &s.Targets },
			func(t *api.SpreadTarget) *string { return &t.Value }),
	},
	foreign: []foreign{
		{names: "weight", why: "spreads count alike", harmless: true},
	},
}

var targetTable = &table[api.SpreadTarget]{
	doc: "The share of one value of an attribute.",
	fields: []field[api.SpreadTarget]{
		integer("percent", "Its share of the group's allocations.",
			func(t *api.SpreadTarget) *int { return &t.Percent }).required("percent = 50"),
	},
}
