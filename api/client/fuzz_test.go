package client_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// FuzzAddress: an address is refused as one, or it is one that can be dialed.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{
		"", "127.0.0.1:7400", "http://db-1:7400/prefix", "https://db-1", "http://[::1]:7400", "http://", "://", "http://user:word@host:1", "http://%zz", "host:name", "a b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		c, err := client.New(client.Config{Address: address, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("nobody is there")
		}})
		if err != nil {
			if api.CodeOf(err) != api.CodeInvalid {
				t.Errorf("%q is refused with %v", address, err)
			}
			return
		}
		defer c.Close()
		if _, _, err := c.Nodes(t.Context(), client.Query{}); err == nil {
			t.Errorf("%q answers", address)
		}
	})
}
