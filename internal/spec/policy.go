package spec

import "github.com/berth-dev/berth/api"

func updates[T any](at func(*T) **api.Update) field[T] {
	return block("update", "How allocations are exchanged for those of a newer revision, in services and system jobs.", updateTable, at)
}

func migrates[T any](at func(*T) **api.Migrate) field[T] {
	return block("migrate", "How allocations leave a node that is drained, in services.", migrateTable, at)
}

func reschedules[T any](at func(*T) **api.Reschedule) field[T] {
	return block("reschedule", "When another allocation follows one that has failed.", rescheduleTable, at)
}

var updateTable = &table[api.Update]{
	doc: "How allocations are exchanged for those of a newer revision. What a group leaves out is as the job says. The newer one of a place is started " +
		"first, and the older one stopped when it is healthy. Where a group holds what is for one, the older one is stopped before: a volume that several may not write to at once, a host volume that is not read only, " +
		"a static port, an exclusive plugin, a place on every node; and, unless order says otherwise, where it has a task of raw_exec, or one that mounts directories of the host.",
	fields: []field[api.Update]{
		integer("max_parallel", "How many places may be without a healthy allocation because of the update.",
			func(u *api.Update) *int { return &u.MaxParallel }).standing("1"),
		choice("health_check", "What makes an allocation healthy: its tasks run and its checks pass, or its tasks run. Without checks it is the second.",
			api.HealthCheckWays(), []string{"manual"}, func(u *api.Update) *api.HealthCheck { return &u.HealthCheck }).standing(string(api.HealthChecks)),
		duration("min_healthy_time", "How long an allocation must have run, with none of its tasks started again and all checks passing, to be healthy.",
			func(u *api.Update) *api.Duration { return &u.MinHealthyTime }).standing("10s"),
		duration("healthy_deadline", "How long a place may take to become healthy. After that no more allocations are exchanged until it is.",
			func(u *api.Update) *api.Duration { return &u.HealthyDeadline }).standing("5m"),
		choice("order", "Whether the older allocation of a place is stopped before the newer one is started. start-first is refused where the group holds what is for one.", api.UpdateOrders(), nil,
			func(u *api.Update) *api.UpdateOrder { return &u.Order }).standing("start-first where nothing forbids it"),
		integer("canary", "In how many places a newer revision is tried first, beside the older allocations. Nothing is stopped, and no other place is exchanged, until `berth job promote`. "+
			"Refused where the older allocation of a place is stopped first, and in a system job.", func(u *api.Update) *int { return &u.Canary }).standing("0"),
		flag("auto_promote", "Promote it when all canaries of the job are healthy.", func(u *api.Update) *bool { return &u.AutoPromote }),
		flag("auto_revert", "Then go back to the last revision that was healthy everywhere.",
			func(u *api.Update) *bool { return &u.AutoRevert }),
	},
	foreign: []foreign{
		{names: "progress_deadline", why: "healthy_deadline holds for each place", harmless: true},
		{names: "stagger", why: "the next follows when the last is healthy", harmless: true},
	},
}

var migrateTable = &table[api.Migrate]{
	doc: "How allocations leave a node that is drained. What a group leaves out is as the job says. It holds for the whole group, however many " +
		"nodes are drained at once.",
	fields: []field[api.Migrate]{
		integer("max_parallel", "How many places of the group may be without a healthy allocation.",
			func(m *api.Migrate) *int { return &m.MaxParallel }).standing("1"),
		choice("health_check", "As in update.", api.HealthCheckWays(), nil,
			func(m *api.Migrate) *api.HealthCheck { return &m.HealthCheck }).standing(string(api.HealthChecks)),
		duration("min_healthy_time", "How long an allocation must have run, with none of its tasks started again and all checks passing, to be healthy.",
			func(m *api.Migrate) *api.Duration { return &m.MinHealthyTime }).standing("10s"),
		duration("healthy_deadline", "How long a place may take to become healthy. After that the drain says that it holds up the others; they go on when it is, or at the drain's deadline.",
			func(m *api.Migrate) *api.Duration { return &m.HealthyDeadline }).standing("5m"),
	},
}

var rescheduleTable = &table[api.Reschedule]{
	doc: "When another allocation follows one that has failed. An allocation that ran for five minutes begins the count afresh.",
	fields: []field[api.Reschedule]{
		integer("attempts", "How often in the interval. A service then waits until the interval is over, and a batch has failed.",
			func(r *api.Reschedule) *int { return &r.Attempts }).standing("any number for a service, 2 for a batch"),
		duration("interval", "The time in which the attempts are counted, from the first failure.",
			func(r *api.Reschedule) *api.Duration { return &r.Interval }).standing("24h for a batch"),
		duration("delay", "How long to wait before the first, and up to a quarter longer.",
			func(r *api.Reschedule) *api.Duration { return &r.Delay }).standing("1s"),
		choice("delay_function", "How the delay grows with failures in a row.", api.DelayFunctions(), nil,
			func(r *api.Reschedule) *api.DelayFunction { return &r.DelayFunction }).standing(string(api.DelayExponential)),
		duration("max_delay", "The longest delay.",
			func(r *api.Reschedule) *api.Duration { return &r.MaxDelay }).standing("5m"),
		flag("unlimited", "Any number of attempts.",
			func(r *api.Reschedule) *bool { return &r.Unlimited }).standing("true for a service without attempts"),
	},
}
