package host

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Vitals is what a process of Berth uses.
type Vitals struct {
	Goroutines, Files int
	// Memory is resident, in bytes. CPU is used since the start of the process.
	Memory int64
	CPU    time.Duration
	// Up counts how often the tasks of an allocation were found or brought up.
	Up int
}

// Vitals are the agent's, which must have been given a metrics address.
func (b *Berth) Vitals(metrics string) (v Vitals, err error) {
	b.mu.Lock()
	pid := 0
	if b.cmd != nil {
		pid = b.cmd.Process.Pid
	}
	b.mu.Unlock()
	return vitals(b.tb.Context(), pid, metrics)
}

// ServerVitals are those of the server of an agent that is apart from it.
func (b *Berth) ServerVitals() (v Vitals, err error) {
	return vitals(b.tb.Context(), b.server.Process.Pid, b.http)
}

func vitals(ctx context.Context, pid int, metrics string) (v Vitals, err error) {
	files, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		return v, err
	}
	v.Files = len(files)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metrics+"/v1/metrics", nil)
	if err != nil {
		return v, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return v, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		space := strings.LastIndexByte(line, ' ')
		name, text := line[:max(space, 0)], line[space+1:]
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			continue
		}
		switch name {
		case "go_goroutines":
			v.Goroutines = int(value)
		case "process_resident_memory_bytes":
			v.Memory = int64(value)
		case "process_cpu_seconds_total":
			v.CPU = time.Duration(value * float64(time.Second))
		case `berth_hook_seconds_count{direction="up",hook="tasks",outcome="ok"}`:
			v.Up = int(value)
		}
	}
	if v.Goroutines == 0 {
		return v, fmt.Errorf("the metrics at %s tell of no goroutines", metrics)
	}
	return v, lines.Err()
}
