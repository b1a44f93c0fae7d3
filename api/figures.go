package api

import "time"

// AllocFigures are what the tasks of an allocation use, as its node measured it.
type AllocFigures struct {
	AllocID AllocID   `json:"alloc_id"`
	NodeID  NodeID    `json:"node_id"`
	Time    time.Time `json:"time"`
	// Tasks are those that run, by name.
	Tasks map[string]TaskFigures `json:"tasks"`
}

// TaskFigures are what one task uses, with all of its processes.
type TaskFigures struct {
	// CPUMilliseconds is the time that it has had of processors since it was
	// started.
	CPUMilliseconds int64 `json:"cpu_milliseconds"`
	// CPUPercent is how much it had of one processor in the last moment, in
	// percent: 200 are two processors.
	CPUPercent int `json:"cpu_percent"`
	// MemoryBytes is the memory that it holds, without what the kernel can take
	// back at once.
	MemoryBytes int64 `json:"memory_bytes"`
	// MemoryLimitBytes is the most that it may hold; 0 is no limit.
	MemoryLimitBytes int64 `json:"memory_limit_bytes,omitempty"`
	Processes        int   `json:"processes,omitempty"`
	// Problem is why nothing is known; the other figures are 0 then.
	Problem string `json:"problem,omitempty"`
}
