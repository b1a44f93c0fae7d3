package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/config"
)

// FuzzRead asserts what holds for any file: no panic, every problem with its
// file and line, and a configuration that is complete and can be completed
// again.
func FuzzRead(f *testing.F) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		f.Fatal(err)
	}
	var example strings.Builder
	for line := range strings.Lines(string(page)) {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			example.WriteString(code)
		}
	}
	f.Add([]byte(example.String()))
	f.Add([]byte("client {\n  enabled = true\n  servers = [\"10.0.0.1:7400\"]\n}\n"))
	f.Add([]byte("plugin \"a\" {\n}\nplugin \"a\" {\n}\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		path := filepath.Join(t.TempDir(), "a.hcl")
		if err := os.WriteFile(path, src, 0o600); err != nil {
			t.Fatal(err)
		}
		read, err := config.Read(path)
		if err != nil {
			checkProblems(t, err, path)
			return
		}
		complete, err := read.Complete()
		if err != nil {
			checkProblems(t, err, path)
			return
		}
		if _, err := complete.Complete(); err != nil {
			t.Errorf("a complete configuration cannot be completed: %v", err)
		}
	})
}

func checkProblems(t *testing.T, err error, path string) {
	t.Helper()
	var invalid *api.Error
	if !errors.As(err, &invalid) || len(invalid.Fields) == 0 {
		t.Fatalf("the error is no api.Error with its problems: %v", err)
	}
	for _, f := range invalid.Fields {
		if f.Message == "" || f.File != "" && f.File != path || f.File != "" && f.Line < 1 {
			t.Errorf("the problem says too little: %+v", f)
		}
	}
}
