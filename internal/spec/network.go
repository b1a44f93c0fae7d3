package spec

import "github.com/berth-dev/berth/api"

// network is the part of a group that a network block holds.
var networkTable = &table[[]api.Port]{
	doc: "The ports that every allocation gets on its node. Tasks have the node's network, and listen on them.",
	fields: []field[[]api.Port]{
		named("port", "A port; one block for each. Tasks find it as BERTH_PORT_<name>, BERTH_IP_<name> and BERTH_ADDR_<name>.", portTable,
			func(p *[]api.Port) *[]api.Port { return p }, func(p *api.Port) *string { return &p.Name }),
		choice("mode", "The network that tasks have, which is the node's. With bridge there is a warning: a task of docker has the network that its config says.",
			[]string{"host", "bridge"}, []string{"none"},
			func(*[]api.Port) *string { return new(string) }).warns("bridge", "a task has the network that its driver gives it", "remove it").standing("host"),
	},
	foreign: []foreign{
		{names: "hostname dns cni", why: "tasks have the node's network"},
		{names: "mbits", why: "bandwidth is not counted", harmless: true},
	},
}

var portTable = &table[api.Port]{
	doc: "A port of every allocation of a group.",
	fields: []field[api.Port]{
		integer("static", "Its number. Without it one is chosen that is free on the node.",
			func(p *api.Port) *int { return &p.Static }),
		integer("to", "The port that a task listens on which has a network of its own, as those of docker do.",
			func(p *api.Port) *int { return &p.To }).standing("the port on the node"),
	},
	foreign: []foreign{
		{names: "host_network ignore_collision", why: "a node has one address"},
	},
}

var serviceTable = &table[api.Service]{
	doc: "A name under which the group's allocations can be found: `berth service status NAME`, and /v1/service/NAME.",
	fields: []field[api.Service]{
		text("name", "The service's name.", func(s *api.Service) *string { return &s.Name }).standing("the names of the job and the group, and of the task if it is in one, with dashes between them"),
		text("port", "The name of one of the group's ports, or the number of a port that a task listens on with the node's network, and that nobody keeps free.",
			func(s *api.Service) *string { return &s.Port }).standing("the service has an address only"),
		texts("tags", "Words that come with the answer.", func(s *api.Service) *[]string { return &s.Tags }),
		choice("provider", "Who tells others of the service.", []string{"berth", "nomad"}, []string{"consul"},
			func(*api.Service) *string { return new(string) }).standing("berth"),
		text("task", "The task that its checks belong to, if they name none. In a task it is that one.",
			func(s *api.Service) *string { return &s.Task }).standing("all main tasks"),
		blocks("check", "How its allocations are asked whether they offer it; one block for each.", checkTable,
			func(s *api.Service) *[]api.ServiceCheck { return &s.Checks }),
		block("check_restart", "When tasks are started again because of the checks that have no such block.", checkRestartTable,
			func(s *api.Service) **api.CheckRestart { return &s.CheckRestart }),
	},
	finish: nameChecks,
	foreign: []foreign{
		{names: "address_mode", why: "the address is the node's", unless: "auto host"},
		{names: "on_update", why: "say it in each check", unless: "require_healthy"},
		{names: "address tagged_addresses canary_tags enable_tag_override identity", why: "the address is the node's"},
		{names: "connect meta canary_meta weights cluster", why: "nothing would use it"},
	},
}

var resourcesTable = &table[api.Resources]{
	doc: "What a task may use of its node. Without the block nothing is counted, and nothing limited.",
	fields: []field[api.Resources]{
		integer("cpu", "MHz that it can count on when others want more too.", func(r *api.Resources) *int { return &r.CPU }),
		integer("memory", "MiB that are kept for it on the node, and the most that it may use where memory_max says nothing else.",
			func(r *api.Resources) *int { return &r.MemoryMB }),
		integer("memory_max", "MiB that it may use at most. Above memory they may be missing when others use theirs.",
			func(r *api.Resources) *int { return &r.MemoryMaxMB }),
		olderNetwork,
	},
	foreign: []foreign{
		{names: "cores", why: "processors are shared: say with cpu what the task can count on", harmless: true},
		{names: "numa device secrets", why: "devices and file systems in memory are not assigned"},
		{names: "disk iops", why: "disk space is not counted", harmless: true},
	},
}
