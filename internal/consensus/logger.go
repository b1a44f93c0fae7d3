package consensus

import (
	"context"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger brings raft's messages to slog. Raft speaks of elections and
// votes at Info; to an operator of Berth those are details, so each level
// goes down by one, but for errors.
type raftLogger struct {
	hclog.Logger // for what is not overridden: a logger that says nothing
	log          *slog.Logger
	name         string
}

func newRaftLogger(log *slog.Logger) hclog.Logger {
	return &raftLogger{Logger: hclog.NewNullLogger(), log: log.With("component", "raft"), name: "raft"}
}

func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
	switch level {
	case hclog.Error:
		l.Error(msg, args...)
	case hclog.Warn:
		l.Warn(msg, args...)
	case hclog.NoLevel, hclog.Trace, hclog.Debug, hclog.Info, hclog.Off:
		l.Info(msg, args...)
	}
}

func (l *raftLogger) Trace(string, ...any)           {}
func (l *raftLogger) Debug(string, ...any)           {}
func (l *raftLogger) Info(msg string, args ...any)   { l.emit(slog.LevelDebug, msg, args) }
func (l *raftLogger) Warn(msg string, args ...any)   { l.emit(slog.LevelInfo, msg, args) }
func (l *raftLogger) Error(msg string, args ...any)  { l.emit(slog.LevelError, msg, args) }
func (l *raftLogger) IsInfo() bool                   { return true }
func (l *raftLogger) IsWarn() bool                   { return true }
func (l *raftLogger) IsError() bool                  { return true }
func (l *raftLogger) Name() string                   { return l.name }
func (l *raftLogger) Named(name string) hclog.Logger { return l.ResetNamed(l.name + "." + name) }

func (l *raftLogger) emit(level slog.Level, msg string, args []any) {
	l.log.Log(context.Background(), level, msg, args...) //nolint:forbidigo,sloglint // raft passes no context, and its messages are its own
}

func (l *raftLogger) With(args ...any) hclog.Logger {
	next := *l
	next.log = l.log.With(args...)
	return &next
}

func (l *raftLogger) ResetNamed(name string) hclog.Logger {
	next := *l
	next.name = name
	return &next
}

func (l *raftLogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.log.Handler(), slog.LevelDebug)
}

func (l *raftLogger) StandardWriter(opts *hclog.StandardLoggerOptions) io.Writer {
	return l.StandardLogger(opts).Writer()
}
