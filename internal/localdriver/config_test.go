package localdriver_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/localdriver"
)

func problems(err error) []string {
	var e *api.Error
	if !errors.As(err, &e) {
		return nil
	}
	var paths []string
	for _, f := range e.Fields {
		paths = append(paths, f.Path)
	}
	return paths
}

func TestNew_ReportsEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	_, err := localdriver.New(localdriver.Config{Root: "relative", Endpoint: "tcp://1.2.3.4", NodeID: "-a-", Name: "a b"}, slog.New(slog.DiscardHandler))
	want := []string{"root", "endpoint", "node_id", "name", "version"}
	if diff := cmp.Diff(want, problems(err)); diff != "" {
		t.Errorf("fields with problems (-want +got):\n%s\n%v", diff, err)
	}
	if api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("code %s, want %s", api.CodeOf(err), api.CodeInvalid)
	}
}

func TestNew_EachFieldHasItsRules(t *testing.T) {
	t.Parallel()
	good := localdriver.Config{
		Root: "/var/lib/berth/local", Endpoint: "unix:///run/berth/csi.sock", NodeID: "n", Version: "1",
	}
	for name, c := range map[string]struct {
		change func(*localdriver.Config)
		field  string // empty: it is fine
	}{
		"Good":              {func(*localdriver.Config) {}, ""},
		"PlainPath":         {func(c *localdriver.Config) { c.Endpoint = "/run/csi.sock" }, ""},
		"OwnName":           {func(c *localdriver.Config) { c.Name = "disk.example.com" }, ""},
		"LongestNode":       {func(c *localdriver.Config) { c.NodeID = strings.Repeat("n", 63) }, ""},
		"FewVolumes":        {func(c *localdriver.Config) { c.MaxVolumes = 16 }, ""},
		"NegativeVolumes":   {func(c *localdriver.Config) { c.MaxVolumes = -1 }, "max_volumes"},
		"NoRoot":            {func(c *localdriver.Config) { c.Root = "" }, "root"},
		"RootOfEverything":  {func(c *localdriver.Config) { c.Root = "/tmp/.." }, "root"},
		"NoEndpoint":        {func(c *localdriver.Config) { c.Endpoint = "" }, "endpoint"},
		"RelativeEndpoint":  {func(c *localdriver.Config) { c.Endpoint = "unix://csi.sock" }, "endpoint"},
		"EndpointNotASock":  {func(c *localdriver.Config) { c.Endpoint = "/run/csi" }, "endpoint"},
		"EndpointTooLong":   {func(c *localdriver.Config) { c.Endpoint = "/" + strings.Repeat("a", 103) + ".sock" }, "endpoint"},
		"NoNode":            {func(c *localdriver.Config) { c.NodeID = "" }, "node_id"},
		"NodeTooLong":       {func(c *localdriver.Config) { c.NodeID = strings.Repeat("n", 64) }, "node_id"},
		"NodeWithAtSign":    {func(c *localdriver.Config) { c.NodeID = "a@b" }, "node_id"},
		"NameTooLong":       {func(c *localdriver.Config) { c.Name = strings.Repeat("n", 64) }, "name"},
		"NameWithUnderline": {func(c *localdriver.Config) { c.Name = "a_b" }, "name"},
		"NoVersion":         {func(c *localdriver.Config) { c.Version = "" }, "version"},
		"VersionTooLong":    {func(c *localdriver.Config) { c.Version = strings.Repeat("1", 129) }, "version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := good
			c.change(&cfg)
			_, err := localdriver.New(cfg, slog.New(slog.DiscardHandler))
			var want []string
			if c.field != "" {
				want = []string{c.field}
			}
			if diff := cmp.Diff(want, problems(err)); diff != "" {
				t.Errorf("fields with problems (-want +got):\n%s\n%v", diff, err)
			}
		})
	}
}
