package host

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
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

// SupervisorVitals are those of the supervisor of a task.
func (b *Berth) SupervisorVitals(task string) (v Vitals, err error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return v, err
	}
	for _, path := range lines {
		line, err := os.ReadFile(path)
		args := strings.Split(string(line), "\x00")
		if err != nil || len(args) < 3 || args[1] != "executor" || !strings.HasPrefix(args[2], b.DataDir+"/") || !strings.Contains(args[2], "-"+task+"-") {
			continue
		}
		proc := filepath.Dir(path)
		files, err := os.ReadDir(filepath.Join(proc, "fd"))
		if err != nil {
			return v, err
		}
		v.Files = len(files)
		statm, err := os.ReadFile(filepath.Join(proc, "statm"))
		if err != nil {
			return v, err
		}
		var size, resident int64
		if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
			return v, err
		}
		v.Memory = resident * int64(os.Getpagesize())
		v.Goroutines, err = supervisorGoroutines(b.tb.Context(), filepath.Join(args[2], "sock"))
		return v, err
	}
	return v, fmt.Errorf("task %s has no supervisor", task)
}

// supervisorGoroutines asks a supervisor at its socket.
func supervisorGoroutines(ctx context.Context, socket string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://supervisor/vitals", nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	var is struct {
		Goroutines int `json:"goroutines"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&is); err != nil {
		return 0, err
	}
	if is.Goroutines == 0 {
		return 0, fmt.Errorf("the supervisor at %s tells of no goroutines", socket)
	}
	return is.Goroutines, nil
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
