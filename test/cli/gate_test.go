package cli_test

import (
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/cli"
	"github.com/berth-dev/berth/test/cluster"
)

// gate is the way from the command line to the servers, on which connections
// can be slow, break, or lead to something else.
type gate struct {
	to       string
	provider *csitest.Backend
	machine  *cluster.Node
	mu       sync.Mutex // guards below
	mode     string
	delay    time.Duration
	after    int
	conns    map[net.Conn]bool
}

// The modes of a gate.
const (
	pass    = "pass"
	slow    = "slow"    // every part of an answer comes later, by a duration
	trickle = "trickle" // few bytes come at a time, in both directions
	cut     = "cut"     // the connection breaks after so many bytes of an answer
	refuse  = "refuse"  // the connection ends before anything was said
	garbage = "garbage" // something answers that speaks no HTTP
	foreign = "foreign" // something answers that is another program
	proxied = "proxied" // something between says that nobody is behind it
)

// newGate starts a gate to an address, and returns it with its own.
func newGate(tb testing.TB, to string) (g *gate, address string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	g = &gate{to: to, mode: pass, conns: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { g.serve(conn) })
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		g.set(pass)
		all.Wait()
	})
	return g, l.Addr().String()
}

// set changes how it is from now on, and breaks what is connected.
func (g *gate) set(mode string, args ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mode = mode
	if mode == slow {
		g.delay, _ = time.ParseDuration(args[0])
	}
	if mode == cut {
		g.after, _ = strconv.Atoi(args[0])
	}
	for conn := range g.conns {
		_ = conn.Close()
	}
}

// keep has a connection broken with the gate's next change.
func (g *gate) keep(conn net.Conn) (mode string, delay time.Duration, after int, forget func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[conn] = true
	return g.mode, g.delay, g.after, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.conns, conn)
		_ = conn.Close()
	}
}

func (g *gate) serve(near net.Conn) {
	mode, delay, after, forget := g.keep(near)
	defer forget()
	switch mode {
	case refuse:
		return
	case garbage:
		_, _ = io.WriteString(near, "220 mail.example ESMTP\r\n")
		_, _ = io.Copy(io.Discard, near) // until the other side has seen enough
		return
	case foreign, proxied:
		answer := "HTTP/1.1 200 OK\r\n"
		if mode == proxied {
			answer = "HTTP/1.1 502 Bad Gateway\r\n"
		}
		_, _ = near.Read(make([]byte, 1<<16))
		_, _ = io.WriteString(near, answer+"Content-Type: text/html\r\nContent-Length: 22\r\nConnection: close\r\n\r\n<html>Welcome!</html>\n")
		return
	}
	far, err := net.Dial("tcp", g.to)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(drops(far, mode), near)
		_ = far.Close()
	})
	defer up.Wait()
	defer forget()
	part := make([]byte, 1<<16)
	for sent := 0; ; {
		n, err := far.Read(part)
		if err != nil {
			return
		}
		if mode == slow {
			<-time.After(delay)
		}
		if mode == cut && sent+n >= after {
			_, _ = near.Write(part[:after-sent])
			return
		}
		if _, err := drops(near, mode).Write(part[:n]); err != nil {
			return
		}
		sent += n
	}
}

// drops is what writes to a connection as its gate's mode says.
func drops(to io.Writer, mode string) io.Writer {
	if mode == trickle {
		return trickling{to}
	}
	return to
}

// trickling writes few bytes at a time.
type trickling struct{ io.Writer }

// Write implements io.Writer.
func (t trickling) Write(p []byte) (sent int, err error) {
	for len(p) > sent && err == nil {
		var n int
		n, err = t.Writer.Write(p[sent:min(len(p), sent+100)])
		sent += n
		<-time.After(time.Millisecond)
	}
	return sent, err
}

// gates are those of the scripts, by their address.
type gates struct{ sync.Map }

func (all *gates) of(ts *testscript.TestScript) *gate {
	g, there := all.Load(ts.Getenv("BERTH_ADDRESS"))
	if !there {
		ts.Fatalf("this script has no gate")
	}
	return g.(*gate)
}

// change is the command that changes the gate: gate slow 50ms.
func (all *gates) change(ts *testscript.TestScript, _ bool, args []string) {
	all.of(ts).set(args[0], args[1:]...)
}

// fails is the command that makes the driver answer a call with a code, from
// now on or as often as is said: fails CreateVolume RESOURCE_EXHAUSTED 2.
func (all *gates) fails(ts *testscript.TestScript, _ bool, args []string) {
	rule := csitest.Rule{Method: args[0], Do: csitest.Fail(args[1], "so says the provider")}
	if len(args) > 2 {
		n, err := strconv.Atoi(args[2])
		ts.Check(err)
		rule.Times = n
	}
	all.of(ts).provider.Script(rule)
}

// meddle is the command that changes something at the provider, behind
// everybody's back: meddle add ID, vanish NAME, problem NAME WORDS, attach NAME
// NODE, or detach NAME NODE. A volume is named by the cluster's id of it, or by
// the provider's.
func (all *gates) meddle(ts *testscript.TestScript, _ bool, args []string) {
	b := all.of(ts).provider
	var out strings.Builder
	id := args[1]
	if run(ts, &out, []string{"volume", "status", id, "--template", "{{.Status.ExternalID}}"}) == 0 {
		id = strings.TrimSpace(out.String())
	}
	switch args[0] {
	case "add":
		b.Add(id, nil)
	case "vanish":
		if !b.Vanish(id) {
			ts.Fatalf("there is no volume %s", id)
		}
	case "problem":
		b.SetProblem(id, strings.Join(args[2:], " "))
	case "attach", "detach":
		b.Meddle(id, args[2], args[0] == "attach")
	default:
		ts.Fatalf("meddle how?")
	}
}

// during is the command that breaks the connection in the middle of another:
// during refuse 7s COMMAND... then COMMAND... The first command has printed
// something when the connection breaks; the second begins when it is whole
// again. Both have to succeed; after a !, the first one fails.
func (all *gates) during(ts *testscript.TestScript, neg bool, args []string) {
	g, mode := all.of(ts), args[0]
	lasts, err := time.ParseDuration(args[1])
	ts.Check(err)
	var first, second []string
	for i, arg := range args {
		if arg == "then" {
			first, second = args[2:i], args[i+1:]
		}
	}
	began := &signalling{Writer: ts.Stdout(), began: make(chan struct{})}
	status := make(chan int, 1)
	go func() { status <- run(ts, began, first) }()
	select {
	case <-began.began:
	case got := <-status:
		ts.Fatalf("%s: exit status %d before anything was printed", strings.Join(first, " "), got)
	}
	g.set(mode)
	<-time.After(lasts)
	g.set(pass)
	if got := run(ts, io.Discard, second); got != cli.ExitDone {
		ts.Fatalf("%s: exit status %d", strings.Join(second, " "), got)
	}
	want := cli.ExitDone
	if neg {
		want = cli.ExitFailed
	}
	if got := <-status; got != want {
		ts.Fatalf("%s: exit status %d", strings.Join(first, " "), got)
	}
}

// signalling tells when something was written.
type signalling struct {
	io.Writer
	once  sync.Once
	began chan struct{}
}

func (s *signalling) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.began) })
	return s.Writer.Write(p)
}

// power switches the machine of the node off, with all that runs and is mounted
// there, and on again.
func (all *gates) power(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || args[0] != "on" && args[0] != "off" {
		ts.Fatalf("usage: machine on|off")
	}
	m := all.of(ts).machine
	if args[0] == "on" {
		m.Mend()
		m.Start()
		return
	}
	m.Cut()
	m.Reboot()
}
