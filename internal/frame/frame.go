// Package frame is how a stream between an agent and a server, or between a
// person's program and a server, is cut into frames: a byte of kind, four bytes of length, and that much payload.
//
// It never interprets a payload. Invariant: no frame is larger than Max, so
// that either side reads with a fixed amount of memory.
package frame

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// Kind says what a frame carries. New kinds go to the end; who meets one that
// it does not know ends the stream.
type Kind byte

// The kinds.
const (
	// Ping has no payload: the sender lives, and has nothing to say.
	Ping Kind = iota
	// Begin is the first frame of a stream that can be served: JSON.
	Begin
	// Data is bytes as they are.
	Data
	// End is the last frame: an api.Error as JSON, or nothing if all went well.
	End
	// Input is what a command is given to read, and InputEnd its end.
	Input
	InputEnd
	// Taken says that a command has been given so much of its input: four bytes.
	Taken
	// Resize and Signal are for a command that runs: JSON, and a name.
	Resize
	Signal
	// Errors is what a command writes to its standard error.
	Errors
	// Exit says how a command ended: JSON.
	Exit
)

// Window is how much of Input may be on its way that was not Taken yet, in
// bytes. A receiver that keeps so much room never holds up what comes behind.
const Window = 256 << 10

// Max is the largest payload, in bytes.
const Max = 64 << 10

const header = 5

// Writer writes frames. It is safe for concurrent use.
type Writer struct {
	turn chan struct{} // capacity 1: who has put something in may write
	to   io.Writer
	buf  []byte
}

// NewWriter returns a writer of frames.
func NewWriter(to io.Writer) *Writer {
	return &Writer{turn: make(chan struct{}, 1), to: to, buf: make([]byte, 0, header+Max)}
}

// Put writes one frame.
func (w *Writer) Put(k Kind, payload []byte) error {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	return w.put(k, payload)
}

// Ping writes a ping, unless another frame is on its way: that says as much.
func (w *Writer) Ping() error {
	select {
	case w.turn <- struct{}{}:
	default:
		return nil
	}
	defer func() { <-w.turn }()
	return w.put(Ping, nil)
}

func (w *Writer) put(k Kind, payload []byte) error {
	if len(payload) > Max {
		return fmt.Errorf("frame of %d bytes: at most %d", len(payload), Max)
	}
	w.buf = append(w.buf[:0], byte(k))
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(payload))) //nolint:gosec // at most Max
	w.buf = append(w.buf, payload...)
	_, err := w.to.Write(w.buf)
	return err
}

// Write implements io.Writer by Data frames.
func (w *Writer) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), Max)]
		if err := w.Put(Data, part); err != nil {
			return n, err
		}
		n, p = n+len(part), p[len(part):]
	}
	return n, nil
}

// Reader reads frames. It has one user.
type Reader struct {
	from *bufio.Reader
	buf  []byte
}

// NewReader returns a reader of frames.
func NewReader(from io.Reader) *Reader { return &Reader{from: bufio.NewReader(from)} }

// Next reads one frame. Its payload is good until the next call. A stream that
// ends between frames answers io.EOF, one that ends within a frame
// io.ErrUnexpectedEOF.
func (r *Reader) Next() (Kind, []byte, error) {
	var head [header]byte
	if _, err := io.ReadFull(r.from, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > Max {
		return 0, nil, fmt.Errorf("frame of %d bytes: at most %d", size, Max)
	}
	if cap(r.buf) < int(size) {
		r.buf = make([]byte, size, Max)
	}
	p := r.buf[:size]
	if _, err := io.ReadFull(r.from, p); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return Kind(head[0]), p, nil
}
