package agent

import (
	"bufio"
	"maps"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/api"
)

// profile is what the configuration says of the machine, with the attributes
// that a constraint can name. What cannot be read is left out.
func profile(cfg *Config) api.Profile {
	p := cfg.Profile
	p.Attributes = map[string]string{
		"cpu.arch":      runtime.GOARCH,
		"cpu.numcores":  strconv.Itoa(runtime.NumCPU()),
		"kernel.name":   runtime.GOOS,
		"berth.version": cfg.Version,
	}
	found := func(name, value string) {
		if value = strings.TrimSpace(value); value != "" {
			p.Attributes[name] = value
		}
	}
	found("kernel.version", firstLine("/proc/sys/kernel/osrelease"))
	found("unique.hostname", firstLine("/proc/sys/kernel/hostname"))
	release := assignments("/etc/os-release", "=")
	found("os.name", release["ID"])
	found("os.version", release["VERSION_ID"])
	if kib, _, _ := strings.Cut(strings.TrimSpace(assignments("/proc/meminfo", ":")["MemTotal"]), " "); kib != "" {
		if n, err := strconv.ParseInt(kib, 10, 64); err == nil {
			found("memory.totalbytes", strconv.FormatInt(n<<10, 10))
			if p.MemoryMB == 0 {
				p.MemoryMB = int(n >> 10)
			}
		}
	}
	if p.CPU == 0 {
		p.CPU = runtime.NumCPU() * megahertz()
	}
	maps.Copy(p.Attributes, cfg.Profile.Attributes)
	for name, v := range cfg.HostVolumes {
		if p.HostVolumes == nil {
			p.HostVolumes = map[string]api.HostVolume{}
		}
		p.HostVolumes[name] = api.HostVolume{ReadOnly: v.ReadOnly}
	}
	return p
}

// megahertz is how fast one processor can be, 0 if the machine does not say.
func megahertz() int {
	if kilohertz, err := strconv.Atoi(firstLine("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")); err == nil {
		return kilohertz / 1000
	}
	now, err := strconv.ParseFloat(assignments("/proc/cpuinfo", ":")["cpu MHz"], 64)
	if err != nil {
		return 0
	}
	return int(now)
}

func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

// assignments reads a file of names and values.
func assignments(path, separator string) map[string]string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	values := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), separator); ok {
			values[strings.TrimSpace(name)] = strings.Trim(strings.TrimSpace(value), "\"'")
		}
	}
	return values
}
