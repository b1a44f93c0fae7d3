package client_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/frame"
)

// Who sets a terminal up when the command runs must not do so on top of it.
func TestExecBeginsOnceWhateverTheAgentSays(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+api.UpgradeFrames+"\r\n\r\n"); err != nil {
			t.Error(err)
		}
		out := frame.NewWriter(conn)
		for _, kind := range []frame.Kind{frame.Begin, frame.Begin} {
			if err := out.Put(kind, nil); err != nil {
				t.Error(err)
			}
		}
		if err := out.Put(frame.Exit, []byte(`{"code":3}`)); err != nil {
			t.Error(err)
		}
		if err := out.Put(frame.End, nil); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	c, err := client.New(client.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	begun := 0
	exit, err := c.Exec(t.Context(), "a1", "t", api.ExecRequest{Command: []string{"ls"}}, client.ExecIO{Begun: func() { begun++ }})
	if err != nil || exit.Code != 3 || begun != 1 {
		t.Errorf("exit %+v, error %v, begun %d times", exit, err, begun)
	}
}
