package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/test/cluster"
)

const herdPath api.VariablePath = "nomad/jobs/db"

// herd is many tasks that wait for one variable, each over a connection of its
// own, until it has another value.
type herd struct {
	c    *cluster.Cluster
	told chan error
}

func (h *herd) wait(b *testing.B, index uint64, value string) {
	for {
		v, at, err := h.c.Client.Variable(b.Context(), api.DefaultNamespace, herdPath, client.Query{Index: index, Wait: time.Minute})
		if err != nil && api.CodeOf(err) != api.CodeNotFound || err == nil && v.Items["value"] == value {
			h.told <- err
			return
		}
		index = at
	}
}

func putHerd(b *testing.B, c *cluster.Cluster, path api.VariablePath, value string) *api.Variable {
	b.Helper()
	v, err := c.Client.PutVariable(b.Context(), api.DefaultNamespace, path, api.VariableSpec{Items: map[string]string{"value": value}}, 0)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// BenchmarkHerd is how long it takes from a write of a variable until 500 tasks
// that wait for it have it, and what of the processor a write of another one
// takes while they wait.
func BenchmarkHerd(b *testing.B) {
	const tasks = 500
	for _, size := range []int{100, 60 << 10} {
		b.Run(fmt.Sprintf("write/bytes=%d", size), func(b *testing.B) {
			h := &herd{c: cluster.Start(b, cluster.Config{}), told: make(chan error, tasks)}
			before := putHerd(b, h.c, herdPath, "before")
			var took time.Duration
			used := time.Duration(0)
			for i := 0; b.Loop(); i++ {
				value := fmt.Sprint(i) + strings.Repeat("x", size)
				for range tasks {
					go h.wait(b, before.ModifyIndex, value)
				}
				<-time.After(200 * time.Millisecond) // they wait
				began, cpu := time.Now(), processor(b)
				before = putHerd(b, h.c, herdPath, value)
				for range tasks {
					if err := <-h.told; err != nil {
						b.Fatal(err)
					}
				}
				took, used = took+time.Since(began), used+processor(b)-cpu
			}
			b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "told-ms")
			b.ReportMetric(float64(used.Milliseconds())/float64(b.N), "cpu-ms")
		})
	}
	b.Run("other", func(b *testing.B) {
		h := &herd{c: cluster.Start(b, cluster.Config{}), told: make(chan error, tasks)}
		first := putHerd(b, h.c, herdPath+"/g", "before")
		for range tasks {
			go h.wait(b, first.ModifyIndex, "end") // for what is not there yet
		}
		<-time.After(500 * time.Millisecond) // they wait
		used := processor(b)
		const writes = 100
		for i := 0; b.Loop(); i++ {
			for n := range writes {
				putHerd(b, h.c, herdPath+"/g", fmt.Sprint(i, n))
			}
		}
		b.ReportMetric(float64((processor(b)-used).Microseconds())/float64(b.N*writes), "cpu-us/write")
		putHerd(b, h.c, herdPath, "end")
		for range tasks {
			if err := <-h.told; err != nil {
				b.Fatal(err)
			}
		}
	})
}
