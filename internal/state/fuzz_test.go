package state_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/internal/state"
)

// FuzzLoad feeds the reader of saved states what is no saved state: it must
// refuse it, or read what it would save again.
func FuzzLoad(f *testing.F) {
	for _, name := range goldenStates() {
		plain, err := os.ReadFile(name + ".txt")
		if err != nil {
			f.Fatal(err)
		}
		for _, cut := range []int{0, 1, len(plain) / 2, len(plain) - 1, len(plain)} {
			f.Add(plain[:cut])
		}
	}
	// Compression hides what is inside from the fuzzer.
	packer, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, plain []byte) {
		loaded, err := state.Load(bytes.NewReader(packer.EncodeAll(plain, nil)))
		if err != nil {
			return
		}
		var first, second bytes.Buffer
		if err := loaded.View().Save(&first); err != nil {
			t.Fatalf("save what was loaded: %v", err)
		}
		again, err := state.Load(bytes.NewReader(first.Bytes()))
		if err != nil {
			t.Fatalf("load what was saved: %v", err)
		}
		if err := again.View().Save(&second); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Error("a state changes when it is saved and loaded")
		}
	})
}
