// Package telemetry makes the logger and the metrics, and knows the program's
// version. It never decides what is worth a line or a number. Invariant: what
// is not configured costs nothing, and no label has unbounded values.
package telemetry

import (
	"io"
	"log/slog"
	"runtime/debug"
)

// NewLogger returns a logger that writes lines of text or JSON. An unknown
// level is info; configuration is checked elsewhere.
func NewLogger(w io.Writer, level, format string) *slog.Logger {
	return NewLeveledLogger(w, NewLevel(level), format)
}

// NewLevel is a level that can be set again while loggers have it.
func NewLevel(level string) *Level {
	l := &Level{}
	l.Set(level)
	return l
}

// Level is how much is logged.
type Level struct{ at slog.LevelVar }

// Set changes the level, to info if it is unknown.
func (l *Level) Set(level string) {
	var to slog.Level
	if err := to.UnmarshalText([]byte(level)); err != nil {
		to = slog.LevelInfo
	}
	l.at.Set(to)
}

// NewLeveledLogger is NewLogger with a level that can be set again.
func NewLeveledLogger(w io.Writer, level *Level, format string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: &level.at}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// development is the version of a build that was given none.
const development = "dev"

// Version is the version that the build was stamped with, else the module's,
// else dev.
func Version(stamped string) string {
	if stamped != "" {
		return stamped
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return development
}
