package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// bigSize is a size of three parts.
const bigSize = SinglePut + 1000

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAnUploadContinuesFromItsJournal promises that a second call sends only the parts that the first did not,
// and all parts if the file has changed.
func TestAnUploadContinuesFromItsJournal(t *testing.T) {
	for _, changed := range []bool{false, true} {
		c := newCluster(t, 2)
		dir := t.TempDir()
		path, journal := filepath.Join(dir, "file"), filepath.Join(dir, "sub", "journal")
		data := randomBytes(bigSize)
		writeFile(t, path, data)
		for _, n := range c.nodes {
			n.breaks(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Get("partNumber") == "3" {
					refuse(w, http.StatusForbidden, "AccessDenied")
					return true
				}
				return false
			})
		}
		o := UploadOptions{Journal: journal, Parallel: 1}
		if _, err := c.client().UploadFile(t.Context(), "bucket", "key", path, o); !errors.Is(err, ErrDenied) {
			t.Fatal(err)
		}
		if len(c.uploads) != 1 || c.number("PUT", "partNumber") != 3 {
			t.Fatalf("%d uploads after %q", len(c.uploads), c.requests)
		}
		f, err := os.OpenFile(journal, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(f, `{"part":3,"et`) // as a crash leaves it
		_ = f.Close()
		if changed {
			data = append(data, 1)
			writeFile(t, path, data)
		}
		for _, n := range c.nodes {
			n.breaks(nil)
		}
		var progress atomic.Int64
		o.Progress = func(n int64) { progress.Add(n) }
		stored, err := c.client().UploadFile(t.Context(), "bucket", "key", path, o)
		if err != nil || stored.Size != int64(len(data)) || progress.Load() != int64(len(data)) {
			t.Errorf("%+v, %v, progress %d", stored, err, progress.Load())
		}
		want := 4
		if changed {
			want = 6
		}
		if sent := c.number("PUT", "partNumber"); sent != want || !bytes.Equal(c.objects["bucket/key"].data, data) || len(c.uploads) != 0 {
			t.Errorf("changed %t: %d parts sent, want %d; %d uploads left", changed, sent, want, len(c.uploads))
		}
		if _, err := os.Stat(journal); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the journal is still there: %v", err)
		}
	}
}

// TestAnUploadThatEndedMeanwhileBeginsAnew promises that an upload begins anew if its journal names an upload
// that the cluster does not know any more.
func TestAnUploadThatEndedMeanwhileBeginsAnew(t *testing.T) {
	c := newCluster(t, 1)
	dir := t.TempDir()
	path, journal := filepath.Join(dir, "file"), filepath.Join(dir, "journal")
	writeFile(t, path, randomBytes(bigSize))
	ctx, cancel := context.WithCancel(t.Context())
	c.nodes[0].breaks(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("partNumber") == "3" {
			cancel()
		}
		return false
	})
	o := UploadOptions{Journal: journal, Parallel: 1}
	if _, err := c.client().UploadFile(ctx, "bucket", "key", path, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	c.mu.Lock()
	clear(c.uploads)
	c.mu.Unlock()
	c.nodes[0].breaks(nil)
	if _, err := c.client().UploadFile(t.Context(), "bucket", "key", path, o); err != nil || len(c.objects["bucket/key"].data) != bigSize {
		t.Error(err)
	}
}

// TestAnUploadWithoutItsAnswerIsAbandoned promises that Abandon removes the upload of a journal whose id the
// client never learned, and no other.
func TestAnUploadWithoutItsAnswerIsAbandoned(t *testing.T) {
	c := newCluster(t, 1)
	c.uploads["theirs"], c.names["theirs"] = map[int][]byte{}, "bucket/key"
	c.uploads["another"], c.names["another"] = map[int][]byte{}, "bucket/key2"
	dir := t.TempDir()
	path, journal := filepath.Join(dir, "file"), filepath.Join(dir, "journal")
	writeFile(t, path, randomBytes(bigSize))
	c.nodes[0].breaks(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && r.URL.Query().Has("uploads") {
			c.mu.Lock()
			c.uploads["lost"], c.names["lost"] = map[int][]byte{}, "bucket/key"
			c.mu.Unlock()
			panic(http.ErrAbortHandler)
		}
		return false
	})
	o := UploadOptions{Journal: journal}
	client := c.client()
	if _, err := client.UploadFile(t.Context(), "bucket", "key", path, o); !errors.Is(err, ErrUnavailable) {
		t.Fatal(err)
	}
	if n := c.number("POST", "uploads"); n != 1 {
		t.Errorf("the start was repeated: %d", n)
	}
	c.nodes[0].breaks(nil)
	if err := client.Abandon(t.Context(), journal); err != nil || c.uploads["lost"] != nil || c.uploads["theirs"] == nil || c.uploads["another"] == nil {
		t.Errorf("%v, left %v", err, c.uploads)
	}
	if err := client.Abandon(t.Context(), journal); err != nil {
		t.Errorf("a journal that is gone: %v", err)
	}
}

// TestAFailedStreamLeavesNoParts promises that Upload of a stream that breaks off returns the stream's error, removes
// the parts and stores no object.
func TestAFailedStreamLeavesNoParts(t *testing.T) {
	c := newCluster(t, 1)
	broken := errors.New("broken pipe")
	src := io.MultiReader(bytes.NewReader(randomBytes(bigSize)), errReader{broken})
	if _, err := c.client().Upload(t.Context(), "bucket", "key", src, UploadOptions{}); !errors.Is(err, broken) {
		t.Error(err)
	}
	c.mu.Lock()
	if len(c.uploads) != 0 || c.started != 1 || c.objects["bucket/key"] != nil {
		t.Errorf("%d uploads left of %d", len(c.uploads), c.started)
	}
	c.mu.Unlock()
	data := randomBytes(5*DefaultPartSize + 3)
	o, err := c.client().Upload(t.Context(), "bucket", "key", bytes.NewReader(data), UploadOptions{Parallel: 2})
	if err != nil || o.Size != int64(len(data)) || !bytes.Equal(c.objects["bucket/key"].data, data) {
		t.Errorf("%+v, %v", o, err)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// TestAFileThatChangesIsNotStored promises that the upload of a large file that changes meanwhile fails with
// ErrChanged and stores no object.
func TestAFileThatChangesIsNotStored(t *testing.T) {
	c := newCluster(t, 1)
	path := filepath.Join(t.TempDir(), "file")
	writeFile(t, path, randomBytes(bigSize))
	c.nodes[0].breaks(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("partNumber") == "2" {
			if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	if _, err := c.client().UploadFile(t.Context(), "bucket", "key", path, UploadOptions{Parallel: 1}); !errors.Is(err, ErrChanged) || len(c.uploads) != 0 || c.objects["bucket/key"] != nil {
		t.Errorf("%v, %d uploads", err, len(c.uploads))
	}
}

// TestADownloadGoesOnElsewhere promises that a download has the whole object, once, although answers break off
// in their middle.
func TestADownloadGoesOnElsewhere(t *testing.T) {
	data := randomBytes(1 << 20)
	for _, verify := range []bool{false, true} {
		c := newCluster(t, 3)
		c.store("bucket/key", data)
		for _, n := range c.nodes {
			n.breaks(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || c.number("GET") > 6 {
					return false
				}
				cut := &cutting{ResponseWriter: w, left: 100_000}
				c.mu.Lock()
				defer c.mu.Unlock()
				c.get(cut, r, "bucket/key")
				return true
			})
		}
		var got bytes.Buffer
		if _, err := c.client().Download(t.Context(), "bucket", "key", &got, DownloadOptions{Verify: verify}); err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("verify %t: %d bytes, %v", verify, got.Len(), err)
		}
		if c.number("GET") < 5 {
			t.Errorf("only %d requests", c.number("GET"))
		}
	}
}

// cutting breaks a connection after some bytes of the body.
type cutting struct {
	http.ResponseWriter

	left int
}

func (w *cutting) Write(p []byte) (int, error) {
	if len(p) > w.left {
		_, _ = w.ResponseWriter.Write(p[:w.left])
		w.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	w.left -= len(p)
	return w.ResponseWriter.Write(p)
}

// TestADownloadToAFileContinues promises that ranges that arrived are not fetched again, unless
// the object has changed, and that the file appears only when it is complete.
func TestADownloadToAFileContinues(t *testing.T) {
	for _, changed := range []bool{false, true} {
		c := newCluster(t, 1)
		data := randomBytes(bigSize)
		c.store("bucket/key", data)
		path := filepath.Join(t.TempDir(), "file")
		writeFile(t, path, []byte("old"))
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		c.nodes[0].breaks(func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.Header.Get("Range"), "bytes=16777216-") {
				cancel()
				<-r.Context().Done()
				panic(http.ErrAbortHandler)
			}
			return false
		})
		o := DownloadOptions{Parallel: 1}
		if _, err := c.client().DownloadFile(ctx, "bucket", "key", path, o); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if old, err := os.ReadFile(path); err != nil || string(old) != "old" {
			t.Errorf("%q, %v", old, err)
		}
		c.nodes[0].breaks(nil)
		want := 4
		if changed {
			data = append([]byte{9}, data...)
			c.store("bucket/key", data)
			want = 6
		}
		if _, err := c.client().DownloadFile(t.Context(), "bucket", "key", path, o); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, data) || c.number("GET") != want {
			t.Errorf("changed %t: %d bytes, %v, %d requests, want %d", changed, len(got), err, c.number("GET"), want)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

// TestAnObjectThatIsReplacedMeanwhileIsNotMixed promises that a download of an object that was replaced since
// its HEAD fails with ErrPrecondition and hands on no bytes.
func TestAnObjectThatIsReplacedMeanwhileIsNotMixed(t *testing.T) {
	c := newCluster(t, 1)
	c.store("bucket/key", randomBytes(1000))
	client := c.client()
	head, err := client.Head(t.Context(), "bucket", "key")
	if err != nil {
		t.Fatal(err)
	}
	c.store("bucket/key", randomBytes(2000))
	var got bytes.Buffer
	if _, err := client.Download(t.Context(), "bucket", "key", &got, DownloadOptions{Object: &head}); !errors.Is(err, ErrPrecondition) || got.Len() > 0 {
		t.Errorf("%v after %d bytes", err, got.Len())
	}
}

// TestANodeThatStallsIsLeft promises that a transfer goes on elsewhere when a node neither takes
// nor sends bytes, although its connections live.
func TestANodeThatStallsIsLeft(t *testing.T) {
	c := newCluster(t, 2)
	data := randomBytes(SinglePut)
	path := filepath.Join(t.TempDir(), "file")
	writeFile(t, path, data)
	var stalled atomic.Int64
	done := make(chan struct{})
	defer close(done)
	c.nodes[0].breaks(func(w http.ResponseWriter, r *http.Request) bool {
		stalled.Add(1)
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Length", "16777216")
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write(data[:1000])
			w.(http.Flusher).Flush()
		}
		if r.Method != http.MethodHead {
			<-done // the connection stays open
		}
		return r.Method != http.MethodHead
	})
	for range 2 { // one of them begins at the node that stalls
		// On a busy machine the other node may seem to stall too, and is tried again.
		client := c.client(func(o *Options) { o.Patience = time.Minute })
		client.stall = 300 * time.Millisecond
		if _, err := client.UploadFile(t.Context(), "bucket", "key", path, UploadOptions{}); err != nil {
			t.Error(err)
		}
		var got bytes.Buffer
		if _, err := client.Download(t.Context(), "bucket", "key", &got, DownloadOptions{Object: &Object{Size: SinglePut}}); err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("%d bytes, %v", got.Len(), err)
		}
	}
	if stalled.Load() == 0 {
		t.Error("no request reached the node that stalls")
	}
}
