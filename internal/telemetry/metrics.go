package telemetry

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Kind is what a metric is to Prometheus.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric describes one metric.
type Metric struct {
	Name   string
	Kind   Kind
	Labels []string
	// Help is a sentence without its full stop.
	Help string
}

// Registry is the metrics of one process. A nil Registry counts nothing, and
// makes instruments that count nothing. To ask twice for the same instrument
// answers the same one.
type Registry struct {
	prom *prometheus.Registry

	mu       sync.Mutex // guards below
	metrics  map[string]Metric
	measures map[string]*prometheus.HistogramVec
	readers  map[string]*reader
}

// NewRegistry returns a registry that knows the Go runtime and the process.
func NewRegistry(version string) *Registry {
	r := &Registry{
		prom: prometheus.NewRegistry(), metrics: map[string]Metric{},
		measures: map[string]*prometheus.HistogramVec{}, readers: map[string]*reader{},
	}
	r.prom.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.Read(Metric{"berth_build_info", Gauge, []string{"version"}, "Always 1, with the program's version"},
		func(emit Emit) { emit(1, version) })
	return r
}

// Handler serves the metrics in the formats that Prometheus reads.
func (r *Registry) Handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(r.prom, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
	})
}

// All describes the metrics by their names, without those of the Go runtime and
// the process.
func (r *Registry) All() []Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Metric, 0, len(r.metrics))
	for _, m := range r.metrics {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Emit gives one value, with as many labels as the metric has.
type Emit func(value float64, labels ...string)

// Read adds a metric whose values are read when somebody asks: what is counted
// anyway costs nothing more. A later reader of the same name replaces it.
func (r *Registry) Read(m Metric, read func(Emit)) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.readers[m.Name]; known != nil {
		known.set(read)
		return
	}
	c := &reader{desc: prometheus.NewDesc(m.Name, m.Help+".", m.Labels, nil), kind: prometheus.GaugeValue, read: read}
	if m.Kind == Counter {
		c.kind = prometheus.CounterValue
	}
	r.prom.MustRegister(c)
	r.readers[m.Name], r.metrics[m.Name] = c, m
}

// reader is a prometheus.Collector.
type reader struct {
	desc *prometheus.Desc
	kind prometheus.ValueType

	mu   sync.Mutex // guards read
	read func(Emit)
}

func (c *reader) set(read func(Emit)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = read
}

// Describe implements prometheus.Collector.
func (c *reader) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements prometheus.Collector.
func (c *reader) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	read := c.read
	c.mu.Unlock()
	read(func(value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(c.desc, c.kind, value, labels...)
	})
}

// Durations measures how long things take, in seconds from 100 µs to 105 s. A
// nil Durations measures nothing.
type Durations struct{ vec *prometheus.HistogramVec }

// Durations is the histogram with that name.
func (r *Registry) Durations(name, help string, labels ...string) *Durations {
	vec := r.measure(Metric{name, Histogram, labels, help}, prometheus.ExponentialBuckets(0.0001, 4, 11))
	if vec == nil {
		return nil
	}
	return &Durations{vec}
}

// Observe notes one.
func (d *Durations) Observe(took time.Duration, labels ...string) {
	if d != nil {
		d.vec.WithLabelValues(labels...).Observe(took.Seconds())
	}
}

// Sizes measures how many there are of something, from 1 to 1024. A nil Sizes
// measures nothing.
type Sizes struct{ vec *prometheus.HistogramVec }

// Sizes is the histogram with that name.
func (r *Registry) Sizes(name, help string, labels ...string) *Sizes {
	vec := r.measure(Metric{name, Histogram, labels, help}, prometheus.ExponentialBuckets(1, 4, 6))
	if vec == nil {
		return nil
	}
	return &Sizes{vec}
}

// Observe notes one.
func (s *Sizes) Observe(n int, labels ...string) {
	if s != nil {
		s.vec.WithLabelValues(labels...).Observe(float64(n))
	}
}

func (r *Registry) measure(m Metric, buckets []float64) *prometheus.HistogramVec {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.measures[m.Name]; known != nil {
		return known
	}
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help + ".", Buckets: buckets}, m.Labels)
	r.prom.MustRegister(vec)
	r.measures[m.Name], r.metrics[m.Name] = vec, m
	return vec
}

// Page is the documentation of the metrics: a table in Markdown.
func (r *Registry) Page() string {
	var b strings.Builder
	b.WriteString("| name | kind | labels | what it is |\n|---|---|---|---|\n")
	for _, m := range r.All() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, strings.Join(m.Labels, ", "), m.Help)
	}
	return b.String()
}
