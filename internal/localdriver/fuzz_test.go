package localdriver_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/berth-dev/berth/internal/localdriver"
	"github.com/berth-dev/berth/internal/localdriver/mount"
)

// words are the values that the fields of a request have, whatever the request.
type words struct {
	id, name, path, staging, word, key, value string
	size, limit                               int64
	mode                                      int32
	// shape says bit by bit which fields are there at all.
	shape uint64
}

// next is the next bit of the shape.
func (w *words) next() bool {
	bit := w.shape&1 == 1
	w.shape >>= 1
	return bit
}

// fill gives every field of a message a value.
func (w *words) fill(m protoreflect.Message) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		if of := f.ContainingOneof(); of != nil && m.WhichOneof(of) != nil {
			continue
		}
		switch {
		case f.IsMap():
			if w.next() {
				m.Mutable(f).Map().Set(protoreflect.ValueOfString(w.key).MapKey(), protoreflect.ValueOfString(w.value))
			}
		case f.IsList() && f.Kind() == protoreflect.MessageKind:
			if w.next() {
				w.fill(m.Mutable(f).List().AppendMutable().Message())
			}
		case f.IsList():
			if w.next() {
				m.Mutable(f).List().Append(protoreflect.ValueOfString(w.word))
			}
		case f.Kind() == protoreflect.MessageKind:
			if w.next() {
				w.fill(m.Mutable(f).Message())
			}
		default:
			m.Set(f, w.scalar(f))
		}
	}
}

func (w *words) scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch kind, name := f.Kind(), string(f.Name()); {
	case kind == protoreflect.BoolKind:
		return protoreflect.ValueOfBool(w.next())
	case kind == protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(w.mode))
	case kind == protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(w.mode)
	case kind == protoreflect.Int64Kind && name == "limit_bytes":
		return protoreflect.ValueOfInt64(w.limit)
	case kind == protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(w.size)
	case name == "staging_target_path":
		return protoreflect.ValueOfString(w.staging)
	case strings.HasSuffix(name, "_path"):
		return protoreflect.ValueOfString(w.path)
	case strings.HasSuffix(name, "_id"):
		return protoreflect.ValueOfString(w.id)
	case name == "name", name == "volume_mount_group":
		return protoreflect.ValueOfString(w.name)
	}
	return protoreflect.ValueOfString(w.word)
}

// confine keeps a path in the directory: what it says of it may be anything,
// where it leads may not. What is not below it at all is none that is absolute.
func confine(dir, path string) string {
	if rest, below := strings.CutPrefix(path, "/"); below {
		if path = dir + "/" + rest; !mount.Within(filepath.Clean(path), dir) {
			path = filepath.Join(dir, filepath.Clean("/"+rest))
		}
	}
	return path
}

// held is a directory of others, and files that no call may touch.
func held(t *testing.T, r *rig) (dir string, look func() map[string]string) {
	t.Helper()
	dir = r.path("pods")
	files := []string{r.path("beside"), filepath.Join(dir, "kept", "file"), filepath.Join(dir, "file")}
	for _, file := range files {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, file, file)
	}
	return dir, func() map[string]string {
		got := map[string]string{}
		for _, file := range files {
			b, err := os.ReadFile(file)
			got[file] = string(b)
			if err != nil {
				got[file] = err.Error()
			}
		}
		return got
	}
}

// FuzzCalls has a driver with one volume, a directory, which may be staged,
// asked anything by any method. It never panics, it answers a code that tells
// what is wrong, and what is not its own is as it was.
func FuzzCalls(f *testing.F) {
	methods, memory := localdriver.Methods(), "/dev/shm" // records are synced, which takes a disk its time
	if _, err := os.Stat(memory); err != nil {
		memory = ""
	}
	long := "/" + strings.Repeat("x", 256)
	for i := range methods {
		at := uint8(i)
		f.Add(at, false, "pg", "1000", "/target", "/kept", "", "kind", "directory", int64(0), int64(0), int32(1), uint64(0x6a))
		f.Add(at, true, "pg", "", "/target", "/staging", "", "", "", int64(0), int64(0), int32(1), uint64(0x2a))
		f.Add(at, true, "pg", "other", "/staging", "/staging", "noatime", "fs_type", "xfs", int64(1<<29), int64(0), int32(1), uint64(1<<64-1))
		f.Add(at, false, "pg", "a\x00b", "/../beside", "/kept/../../pods", "ro", "fs_type", "xfs", int64(1<<60), int64(1), int32(99), uint64(1<<64-1))
		f.Add(at, true, "pg", "", "/a\x00b", "/staging", "", "", "", int64(0), int64(0), int32(1), uint64(0x2a))
		f.Add(at, true, "pg", "", long, "/staging", "", "", "", int64(0), int64(0), int32(1), uint64(0x2a))
		f.Add(at, true, "pg", "", strings.Repeat(long[:100], 50), "/staging", "", "", "", int64(0), int64(0), int32(1), uint64(0x2a))
	}
	f.Fuzz(func(t *testing.T, which uint8, staged bool, id, name, path, staging, word, key, value string, size, limit int64, mode int32, shape uint64) {
		r := newRigIn(t, memory)
		others, look := held(t, r)
		before := look()
		call, end, err := r.driver().Direct()
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		ask := func(method string, fill func(any) error) (any, codes.Code, error) {
			answer, err := call(context.Background(), method, fill)
			st, coded := status.FromError(err)
			if !coded {
				t.Errorf("%s answers %v, which has no code", method, err)
			}
			return answer, st.Code(), err
		}
		// send asks for what is known to be right.
		send := func(method string, request proto.Message) any {
			answer, code, err := ask(method, func(m any) error { proto.Merge(m.(proto.Message), request); return nil })
			if code != codes.OK {
				t.Fatalf("%s: %v", method, err)
			}
			return answer
		}
		pg := send("CreateVolume", directory.createRequest("pg")).(*csi.CreateVolumeResponse).GetVolume().GetVolumeId()
		if staged {
			if err := os.Mkdir(filepath.Join(others, "staging"), 0o755); err != nil {
				t.Fatal(err)
			}
			send("NodeStageVolume", &csi.NodeStageVolumeRequest{VolumeId: pg, StagingTargetPath: filepath.Join(others, "staging"), VolumeCapability: directory.capability()})
		}

		utf8 := func(s string) string { return strings.ToValidUTF8(s, "?") } // what else there is, protobuf refuses
		w := words{
			id: utf8(strings.ReplaceAll(id, "pg", pg)), name: utf8(name), path: confine(others, utf8(path)), staging: confine(others, utf8(staging)),
			word: utf8(word), key: utf8(key), value: utf8(value), size: size, limit: limit, mode: mode, shape: shape,
		}
		method := methods[int(which)%len(methods)]
		var request proto.Message
		_, code, err := ask(method, func(m any) error {
			request = m.(proto.Message)
			w.fill(request.ProtoReflect())
			return nil
		})
		if code == codes.Internal || code == codes.Unknown {
			t.Errorf("%s of %v: %v", method, request, err)
		}
		if _, code, err := ask("ListVolumes", func(any) error { return nil }); code != codes.OK {
			t.Errorf("after %s of %v, the volumes cannot be listed: %v", method, request, err)
		}
		r.wipe()
		if diff := cmp.Diff(before, look()); diff != "" {
			t.Errorf("%s of %v changed what is not the driver's (-before +after):\n%s", method, request, diff)
		}
	})
}
