package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/berth-dev/berth/internal/supervise"
)

// showMetrics listens for who reads the metrics of this process, if the
// configuration says where. A server shows them with its API, too.
func (p *process) showMetrics(ctx context.Context) error {
	address := p.cfg.Telemetry.MetricsAddress
	if address == "" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for metrics on %s: %w (see telemetry.metrics_address)", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /v1/metrics", p.metrics.Handler(p.log))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	p.tasks = append(p.tasks, supervise.Task{Name: "metrics", Run: func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // whoever reads loses nothing
		defer stop()
		if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve metrics: %w", err)
		}
		return nil
	}})
	return nil
}
