package httpapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// paceTime is how long a caller may take to send or to take the next part of
// what is too large for one packet: somebody who does nothing holds nothing.
const paceTime = 30 * time.Second

// partSize is how much of an answer is written at once, in bytes.
const partSize = 64 << 10

// minZipped is from which size on an answer is compressed, in bytes: less than
// what a connection sends at once arrives no sooner.
const minZipped = 16 << 10

// encoded is an answer in JSON already.
type encoded []byte

// answer writes a result as JSON. nil is an empty object.
func (r *request) answer(v any) {
	if r.streamed {
		return
	}
	if v == nil {
		v = struct{}{}
	}
	r.write(http.StatusOK, v)
}

func (r *request) write(status int, v any) {
	text, zipped := r.buffers.get(), r.buffers.get()
	defer r.buffers.put(text)
	defer r.buffers.put(zipped)
	if ready, ok := v.(encoded); ok {
		text.Write(ready)
	} else if err := json.NewEncoder(text).Encode(v); err != nil {
		status = http.StatusInternalServerError
		text.Reset()
		text.WriteString(`{"code":"internal","message":"the answer could not be encoded"}` + "\n")
	}
	b := text.Bytes()
	r.begun, r.status = true, status
	header := r.w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Vary", "Accept-Encoding")
	if len(b) >= minZipped && takesGzip(r.Header.Values("Accept-Encoding")) {
		header.Set("Content-Encoding", "gzip")
		r.buffers.zip(zipped, b)
		b = zipped.Bytes()
	}
	header.Set("Content-Length", strconv.Itoa(len(b)))
	r.w.WriteHeader(status)
	to := r.paced()
	defer to.done()
	for len(b) > 0 {
		part := b[:min(len(b), partSize)]
		if _, err := to.Write(part); err != nil {
			return // the caller is gone: nobody is left to tell
		}
		b = b[len(part):]
	}
}

// takesGzip reports whether an Accept-Encoding header allows for gzip.
func takesGzip(header []string) bool {
	takes := false
	for coding := range strings.SplitSeq(strings.Join(header, ","), ",") {
		name, quality, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
		switch refused := strings.Trim(strings.TrimPrefix(quality, "q="), "0.") == "" && quality != ""; strings.ToLower(name) {
		case "gzip":
			return !refused
		case "*":
			takes = !refused
		}
	}
	return takes
}

// maxKept is the size of a buffer that is kept for the next answer, in bytes.
const maxKept = 1 << 20

// buffers are what answers are made in, and compressors, to be used again.
type buffers struct {
	texts, zips sync.Pool
}

func (p *buffers) get() *bytes.Buffer {
	b, ok := p.texts.Get().(*bytes.Buffer)
	if !ok {
		return &bytes.Buffer{}
	}
	b.Reset()
	return b
}

func (p *buffers) put(b *bytes.Buffer) {
	if b.Cap() <= maxKept {
		p.texts.Put(b)
	}
}

func (p *buffers) zip(to *bytes.Buffer, b []byte) {
	w, ok := p.zips.Get().(*gzip.Writer)
	if !ok {
		w, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is one
	}
	w.Reset(to)
	_, _ = w.Write(b) // a buffer takes everything
	_ = w.Close()
	p.zips.Put(w)
}

// paced is the connection of a caller who must keep moving.
type paced struct {
	request *request
	conn    *http.ResponseController
}

func (r *request) paced() paced { return paced{r, http.NewResponseController(r.w)} }

// Write implements io.Writer.
func (p paced) Write(b []byte) (int, error) {
	_ = p.conn.SetWriteDeadline(time.Now().Add(paceTime)) // what has no deadlines, waits for nobody
	return p.request.w.Write(b)
}

// Read implements io.Reader. The limit goes with the end of the body, and not
// before: the server reads what a handler leaves of it.
func (p paced) Read(b []byte) (n int, err error) {
	_ = p.conn.SetReadDeadline(time.Now().Add(paceTime))
	n, err = p.request.Body.Read(b)
	if errors.Is(err, io.EOF) {
		_ = p.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}

// done ends what is written, and its limit: the connection may serve others.
func (p paced) done() {
	_ = p.conn.Flush() // who is gone is gone
	_ = p.conn.SetWriteDeadline(time.Time{})
}
