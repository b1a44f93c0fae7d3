package visit

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/frame"
)

// Collect is the visitor of a command that nobody looks at: it gives it no input,
// and answers how it ended and the first bytes, most at most, of what it wrote.
// serve carries the command on the connection that it is given, and returns when
// it has ended.
func Collect(most int, serve func(Conn) error) (output []byte, exit api.ExecExit, err error) {
	listened, said := io.Pipe()
	answered, answers := io.Pipe()
	over := make(chan struct{})
	var around sync.WaitGroup
	around.Go(func() {
		w, tick := frame.NewWriter(said), time.NewTicker(api.StreamPing)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = w.Ping() // who does not listen any more is about to end
			case <-over:
				return
			}
		}
	})
	ended := false
	around.Go(func() {
		r := frame.NewReader(answered)
		for {
			kind, payload, err := r.Next()
			if err != nil {
				return
			}
			switch kind {
			case frame.Data, frame.Errors:
				output = append(output, payload[:min(len(payload), most-len(output))]...)
			case frame.Exit:
				ended = json.Unmarshal(payload, &exit) == nil
			case frame.Begin, frame.Ping, frame.End, frame.Input, frame.InputEnd, frame.Taken, frame.Resize, frame.Signal:
			}
		}
	})
	err = serve(Conn{In: frame.NewReader(listened), Out: frame.NewWriter(answers), Close: func() { _ = listened.CloseWithError(io.ErrClosedPipe) }}) // never fails
	close(over)
	_ = listened.Close() // as above
	_ = answers.Close()
	around.Wait()
	if err == nil && !ended {
		err = fmt.Errorf("the command ended, and nobody said how")
	}
	return output, exit, err
}
