package dockertest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Registry is a registry of images on the loopback, to which engines speak
// without TLS. It serves what engines ask of one, and nothing more.
type Registry struct {
	// Host is its address, with which the names of its images begin.
	Host string

	tb       testing.TB
	password string // user:password, or empty

	mu        sync.Mutex // guards below
	blobs     map[string][]byte
	manifests map[string]string // digests, by repository:tag and repository@digest
	asked     map[string]int
	held      chan struct{}
}

// Media types of the Image Manifest Version 2, Schema 2.
const (
	typeManifest = "application/vnd.docker.distribution.manifest.v2+json"
	typeConfig   = "application/vnd.docker.container.image.v1+json"
	typeLayer    = "application/vnd.docker.image.rootfs.diff.tar.gzip"
)

// StartRegistry starts a registry, which ends with the test. With a password,
// written user:password, only who has it is served.
func StartRegistry(tb testing.TB, password string) *Registry {
	tb.Helper()
	r := &Registry{tb: tb, password: password, blobs: map[string][]byte{}, manifests: map[string]string{}, asked: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/v2/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/v2/{repository}/manifests/{reference}", r.serveManifest)
	mux.HandleFunc("/v2/{repository}/blobs/{digest}", r.serveBlob)
	server := httptest.NewServer(r.protect(mux))
	tb.Cleanup(func() { r.Release(); server.Close() })
	r.Host = strings.TrimPrefix(server.URL, "http://")
	return r
}

// Push puts an image of a tar of files there, and answers its manifest's digest.
func (r *Registry) Push(repository, tag string, files []byte) (digest string) {
	r.tb.Helper()
	var layer bytes.Buffer
	zip, err := gzip.NewWriterLevel(&layer, gzip.NoCompression)
	if err == nil {
		_, err = zip.Write(files)
	}
	if err == nil {
		err = zip.Close()
	}
	if err != nil {
		r.tb.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	config := r.put(r.encode(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Env": []string{"PATH=/bin:/usr/bin"}, "Cmd": []string{"/bin/sh"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digestOf(files)}},
	}))
	files = layer.Bytes()
	blob := r.put(files)
	digest = r.put(r.encode(map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest,
		"config": map[string]any{"mediaType": typeConfig, "size": len(r.blobs[config]), "digest": config},
		"layers": []any{map[string]any{"mediaType": typeLayer, "size": len(files), "digest": blob}},
	}))
	r.manifests[repository+":"+tag], r.manifests[repository+"@"+digest] = digest, digest
	return digest
}

func (r *Registry) encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		r.tb.Fatal(err)
	}
	return b
}

func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// put keeps a blob; the caller holds mu.
func (r *Registry) put(b []byte) string {
	digest := digestOf(b)
	r.blobs[digest] = b
	return digest
}

// Asked is how often somebody wanted to know what a repository has.
func (r *Registry) Asked(repository string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[repository]
}

// Hold has blobs come slowly, and stop in their middle, until Release.
func (r *Registry) Hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = make(chan struct{})
}

// Release lets blobs go on.
func (r *Registry) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		close(r.held)
	}
	r.held = nil
}

func (r *Registry) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		user, password, _ := q.BasicAuth()
		if r.password != "" && user+":"+password != r.password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			fail(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
			return
		}
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		next.ServeHTTP(w, q)
	})
}

func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, code, message) // who is gone need not be told
}

func (r *Registry) serveManifest(w http.ResponseWriter, q *http.Request) {
	repository, ref := q.PathValue("repository"), q.PathValue("reference")
	separator := ":"
	if strings.HasPrefix(ref, "sha256:") {
		separator = "@"
	}
	r.mu.Lock()
	digest, ok := r.manifests[repository+separator+ref]
	b := r.blobs[digest]
	r.asked[repository]++
	r.mu.Unlock()
	if !ok {
		fail(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "manifest unknown")
		return
	}
	w.Header().Set("Content-Type", typeManifest)
	w.Header().Set("Docker-Content-Digest", digest)
	r.serve(w, q, b, nil)
}

func (r *Registry) serveBlob(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	b, ok := r.blobs[q.PathValue("digest")]
	held := r.held
	r.mu.Unlock()
	if !ok {
		fail(w, http.StatusNotFound, "BLOB_UNKNOWN", "blob unknown")
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	r.serve(w, q, b, held)
}

func (r *Registry) serve(w http.ResponseWriter, q *http.Request, b []byte, held <-chan struct{}) {
	w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	if q.Method == http.MethodHead {
		return
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for half := len(b) / 2; held != nil && len(b) > half; b = b[min(len(b), piece):] {
		_, _ = w.Write(b[:min(len(b), piece)])
		_ = http.NewResponseController(w).Flush() // who is gone is noticed below
		select {
		case <-held:
			held = nil
		case <-tick.C:
		case <-q.Context().Done():
			return
		}
	}
	if held != nil {
		select {
		case <-held:
		case <-q.Context().Done():
		}
	}
	_, _ = w.Write(b) // who is gone need not be told
}

// piece is how much of a blob is sent at a time while it is held.
const piece = 256 << 10
