package config

// foreign says of a name of Nomad's in the block at a path why it is not one
// here, and what to write instead; "" if Nomad does not have it.
func foreign(block, name string) (why, mend string) {
	switch block + "." + name {
	case ".bind_addr", ".ports", ".addresses":
		return "each address has a field of its own", `write http { address = "127.0.0.1:7400" }`
	case ".advertise":
		return "servers are reached where they listen", `write server { raft_address = "10.0.0.1:7401" }`
	case ".datacenter", ".region", "server.authoritative_region", ".node_pool", "client.node_pool":
		return "there is one cluster", `remove it, or describe the machine: client { class = "..." meta = { ... } }`
	case ".agent", ".berth", ".nomad":
		return "a file is an agent's", "write what is in it into the file itself"
	case "plugin.config":
		return "a plugin is a CSI driver, and what task drivers may do is said apart", `write driver "docker" { allow_privileged = true }`
	case ".plugin_dir":
		return "task drivers are built in, and CSI drivers are named one by one", `write plugin "name" { socket = "/run/driver.sock" }, or run the driver as a job`
	case "client.node_class":
		return "it is called class", `write class = "..."`
	case "client.server_join", "client.retry_join":
		return "it is called servers", `write servers = ["http://10.0.0.1:7400"]`
	case "client.reserved":
		return "what tasks may have is said instead", "write cpu = 4000 and memory = 8192, in MHz and MiB"
	case "client.cpu_total_compute":
		return "it is called cpu", "write cpu = 4000, in MHz"
	case "client.memory_total_mb":
		return "it is called memory", "write memory = 8192, in MiB"
	case "client.state_dir", "client.alloc_dir", "server.data_dir":
		return "all that must survive is below one directory", `write data_dir = "/var/lib/berth" outside of all blocks`
	case "client.network_interface":
		return "the address is given itself", `write address = "10.0.0.2"`
	case "server.server_join", "server.retry_join", "server.start_join", "server.encrypt":
		return "clusters of several servers come with a later version", "remove it"
	case ".acl", ".tls", ".vault", ".consul", ".autopilot", ".ui", ".sentinel", ".audit", ".limits", ".reporting", ".keyring":
		return "nothing would use it", "remove it"
	case ".enable_syslog", ".syslog_facility", ".log_file", ".log_rotate_bytes", ".log_rotate_duration", ".log_rotate_max_files":
		return "the log goes to the standard error", "remove it, and let the service manager keep the log"
	case ".leave_on_interrupt", ".leave_on_terminate", ".disable_update_check", ".enable_debug":
		return "there is one way", "remove it"
	case "telemetry.prometheus_metrics", "telemetry.publish_allocation_metrics", "telemetry.publish_node_metrics", "telemetry.collection_interval", "telemetry.disable_hostname":
		return "metrics are always there, at /v1/metrics", `remove it; on nodes without a server write metrics_address = "127.0.0.1:7403"`
	case "client.options", "client.chroot_env", "client.artifact", "client.template", "client.no_host_uuid":
		return "nothing would use it", "remove it"
	}
	return "", ""
}
