package frame_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/frame"
)

type got struct {
	Kind    frame.Kind
	Payload string
}

// TestFrames: what is put comes out, however the bytes are delivered.
func TestFrames(t *testing.T) {
	t.Parallel()
	var wire bytes.Buffer
	w := frame.NewWriter(&wire)
	long := strings.Repeat("x", 2*frame.Max+7)
	for _, f := range []got{{frame.Begin, `{"offset":7}`}, {frame.Ping, ""}, {frame.Data, "a"}} {
		if err := w.Put(f.Kind, []byte(f.Payload)); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := io.WriteString(w, long); err != nil || n != len(long) {
		t.Fatal(n, err)
	}
	if err := w.Put(frame.End, nil); err != nil {
		t.Fatal(err)
	}
	var all []got
	r := frame.NewReader(iotest.HalfReader(&wire))
	for {
		kind, payload, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got{kind, string(payload)})
	}
	want := []got{
		{frame.Begin, `{"offset":7}`},
		{frame.Ping, ""},
		{frame.Data, "a"},
		{frame.Data, long[:frame.Max]},
		{frame.Data, long[:frame.Max]},
		{frame.Data, long[:7]},
		{frame.End, ""},
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("(-put +got):\n%s", diff)
	}
}

// TestWrongBytes: whatever comes, memory is bounded and half a frame is no end.
func TestWrongBytes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		wire string
		want error
	}{
		"Nothing":     {"", io.EOF},
		"HalfAHeader": {"\x02\x00\x00", io.ErrUnexpectedEOF},
		"NoPayload":   {"\x02\x00\x00\x00\x02", io.ErrUnexpectedEOF},
		"HalfPayload": {"\x02\x00\x00\x00\x02a", io.ErrUnexpectedEOF},
	} {
		if _, _, err := frame.NewReader(strings.NewReader(tc.wire)).Next(); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
	if _, _, err := frame.NewReader(strings.NewReader("\x02\xff\xff\xff\xff")).Next(); err == nil || !strings.Contains(err.Error(), "4294967295 bytes") {
		t.Errorf("a frame of 4 GiB: %v", err)
	}
	if err := frame.NewWriter(io.Discard).Put(frame.Data, make([]byte, frame.Max+1)); err == nil {
		t.Error("a frame above the limit was put")
	}
}

// FuzzNext: no input makes the reader fail other than by an error.
func FuzzNext(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00\x02ab\x03\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := frame.NewReader(bytes.NewReader(wire))
		for {
			_, payload, err := r.Next()
			if err != nil {
				return
			}
			if len(payload) > frame.Max {
				t.Fatalf("a payload of %d bytes", len(payload))
			}
		}
	})
}
