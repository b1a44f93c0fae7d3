package mount

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"time"
)

// reading is the mount table as it was read last. Every allocation's volumes are
// looked at twice a minute, several times each, and the table has a row for each
// of them: to read it anew for each look is work that grows with their square.
type reading struct {
	mu   sync.Mutex // guards below
	file *os.File   // is told of changes by the kernel; nil before the first
	list List
	at   time.Time
}

// readingAge bounds how long a table is believed of which the kernel tells no
// change. It tells of every mount that comes and goes, and not of one whose
// directory is renamed, or whose file system turns read-only by a fault.
const readingAge = time.Second

var last reading //nolint:gochecknoglobals // the table is the process's

// current is the table as it is now. It is not to be changed.
func (r *reading) current() (List, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list, err := r.look()
	if err != nil {
		if r.file != nil {
			_ = r.file.Close() // it was only read
		}
		r.file, r.list = nil, nil
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	return list, nil
}

// look reads the table if it has to be read. The caller holds mu.
func (r *reading) look() (List, error) {
	if r.file == nil {
		f, err := openTable("/proc/self/mountinfo")
		if err != nil {
			return nil, err
		}
		r.file, r.list = f, nil
	}
	changed, err := fileChanged(r.file)
	if err != nil {
		return nil, err
	}
	if !changed && r.list != nil && time.Since(r.at) < readingAge {
		return r.list, nil
	}
	at := time.Now()
	text, err := readStable(r.file)
	if err != nil {
		return nil, err
	}
	list, err := Parse(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.list, r.at = list, at
	return list, nil
}
