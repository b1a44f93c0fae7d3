package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/berth-dev/berth/api"
)

// maxRead is how much of an answer is read.
const maxRead = 4 << 10

// ask makes one probe.
func ask(ctx context.Context, c *Check) Answer {
	if c.Address == "" && c.Spec.Type != api.CheckScript {
		return Answer{Unasked: true, Output: "the node's address or the service's port is not known"}
	}
	timeout := time.Duration(c.Spec.Timeout)
	if timeout == 0 {
		timeout = api.DefaultCheckTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var a Answer
	switch c.Spec.Type {
	case api.CheckTCP:
		a = askTCP(ctx, c)
	case api.CheckHTTP:
		a = askHTTP(ctx, c)
	case api.CheckScript:
		a = c.Run(ctx, c.Command)
	default:
		a = Answer{Output: fmt.Sprintf("checks of type %s are not known here", c.Spec.Type)}
	}
	if !a.OK && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		a.Unasked, a.Warning = false, false
		a.Output = fmt.Sprintf("no answer within %s: %s", timeout, a.Output)
	}
	a.Output = Line(a.Output)
	return a
}

func askTCP(ctx context.Context, c *Check) Answer {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.Address)
	if err != nil {
		return Answer{Output: err.Error()}
	}
	_ = conn.Close() // it was taken, and that is all
	return Answer{OK: true, Output: c.Address + " takes connections"}
}

// askHTTP asks without a proxy, and follows no redirect: what a check may reach
// is the allocation's own address.
func askHTTP(ctx context.Context, c *Check) Answer {
	s := &c.Spec
	scheme, path, method := s.Protocol, s.Path, s.Method
	if scheme == "" {
		scheme = "http"
	}
	if method == "" {
		method = http.MethodGet
	}
	if path == "" {
		path = "/"
	}
	r, err := http.NewRequestWithContext(ctx, method, scheme+"://"+c.Address+path, strings.NewReader(s.Body))
	if err != nil {
		return Answer{Output: err.Error()}
	}
	r.Header.Set("User-Agent", "berth-check")
	for name, values := range s.Header {
		r.Header[http.CanonicalHeaderKey(name)] = values
		if strings.EqualFold(name, "Host") && len(values) > 0 {
			r.Host = values[0]
		}
	}
	transport := &http.Transport{
		DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: s.TLSSkipVerify, ServerName: s.TLSServerName, MinVersion: tls.VersionTLS12}, // the job asks for it
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if refused, ok := errors.AsType[*url.Error](err); ok {
		err = refused.Err // without the address asked, in which there may be what is nobody's business
	}
	if err != nil {
		return Answer{Output: err.Error()}
	}
	defer func() { _ = answer.Body.Close() }() // what is not read is not wanted
	output := "HTTP " + answer.Status
	if answer.StatusCode == http.StatusSwitchingProtocols {
		// From here on it is a connection, which ends with neither ctx nor a limit.
		return Answer{Output: output + ", and nobody asked for another protocol"}
	}
	// Whatever the body is, it is not read beyond ctx.
	defer context.AfterFunc(ctx, func() { _ = answer.Body.Close() })()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, maxRead))
	if to := answer.Header.Get("Location"); to != "" && answer.StatusCode/100 == 3 {
		output += ", to " + to + ", which is not followed"
	}
	if body = bytes.TrimSpace(body); len(body) > 0 {
		output += ": " + string(body)
	}
	return Answer{OK: answer.StatusCode/100 == 2, Warning: answer.StatusCode == http.StatusTooManyRequests, Output: output}
}

// Line is what was said as one line that harms no terminal, and is not too long.
func Line(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), maxRead)], "?")
	words := strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
	s = strings.Join(words, " ")
	if len(s) > api.MaxCheckOutput {
		s = strings.ToValidUTF8(s[:api.MaxCheckOutput-3], "") + "..."
	}
	return s
}
