//go:build conformance

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// openUpload returns the open upload of a bucket, and its parts with the times when they were stored.
func (c *clientOf) openUpload(bucket string) (id string, parts map[int]string) {
	c.t.Helper()
	uploads := into[struct {
		Upload []struct{ Key, UploadId string }
	}](c.t, c.ok(http.StatusOK, http.MethodGet, "/"+bucket+"?uploads", nil))
	if len(uploads.Upload) != 1 {
		return "", nil
	}
	u := uploads.Upload[0]
	listed := into[struct {
		Part []struct {
			PartNumber   int
			LastModified string
			ETag         string
		}
	}](c.t, c.ok(http.StatusOK, http.MethodGet, "/"+bucket+"/"+u.Key+"?uploadId="+u.UploadId, nil))
	parts = map[int]string{}
	for _, p := range listed.Part {
		parts[p.PartNumber] = p.LastModified + p.ETag
	}
	return u.UploadId, parts
}

// TestAKilledUploadContinues promises that a put which is killed with kill -9 goes on with the same upload
// and sends no part again that is in its journal, with and without encryption.
func TestAKilledUploadContinues(t *testing.T) {
	longForm(t)
	t.Parallel() // a cluster of its own
	cluster := harness.Start(t, harness.Options{})
	c := newClient(t, cluster, "continues")
	path, back := filepath.Join(c.home, "file"), filepath.Join(c.home, "back")
	data := harness.RandomBytes(160<<20 + 5)
	overwrite(t, path, data)
	for _, flags := range [][]string{nil, {"--encrypt"}} {
		put := append([]string{"put", path, "s3://continues/file" + strings.Join(flags, "")}, flags...)
		killed := func(parts int) (id string, stored map[int]string) {
			cmd, _ := c.start(put...)
			harness.Eventually(t, time.Minute, fmt.Sprint(parts, " parts are stored"), func() (bool, error) {
				id, stored = c.openUpload("continues")
				return len(stored) >= parts, nil
			})
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed
			return c.openUpload("continues")
		}
		first, before := killed(3)
		second, after := killed(len(before) + 2)
		if first == "" || first != second {
			t.Errorf("%q: the upload is %q, and then %q", flags, first, second)
		}
		kept := 0
		for number, stored := range before {
			if after[number] == stored {
				kept++
			}
		}
		// A part may be stored whose answer did not reach the journal: one for each transfer.
		if kept < len(before)-4 {
			t.Errorf("%q: %d of %d parts were sent again", flags, len(before)-kept, len(before))
		}
		c.run(put...)
		c.noUploads("continues")
		c.run(append([]string{"get", "--verify", put[2], back}, flags...)...)
		if string(read(t, back)) != string(data) {
			t.Errorf("%q: other bytes", flags)
		}
		if left, err := filepath.Glob(filepath.Join(c.home, ".local", "state", "holdfast", "uploads", "*")); err != nil || len(left) > 0 {
			t.Errorf("%q: journals are left: %q, %v", flags, left, err)
		}
	}
}

// indexIn is the store of an index in a bucket.
type indexIn struct {
	c      *clientOf
	bucket string
}

func (s indexIn) Get(_ context.Context, key string) ([]byte, string, error) {
	r := s.c.call(http.MethodGet, "/"+s.bucket+"/"+key, nil)
	switch r.Status {
	case http.StatusOK:
		return r.Body, strings.Trim(r.Header.Get("ETag"), `"`), nil
	case http.StatusNotFound:
		return nil, "", seal.ErrNotFound
	}
	return nil, "", fmt.Errorf("status %d: %s", r.Status, r.Body)
}

func (s indexIn) PutIf(_ context.Context, key string, data []byte, etag string) error {
	condition := []string{"If-None-Match", "*"}
	if etag != "" {
		condition = []string{"If-Match", `"` + etag + `"`}
	}
	switch r := s.c.call(http.MethodPut, "/"+s.bucket+"/"+key, data, condition...); r.Status {
	case http.StatusOK:
		return nil
	case http.StatusPreconditionFailed, http.StatusConflict:
		return seal.ErrConflict
	default:
		return fmt.Errorf("status %d: %s", r.Status, r.Body)
	}
}

// TestAHundredThousandNamesAreListed promises that ls lists a folder of 100,000 encrypted names from three
// processes, each once, and reports the time it takes. The bound of the specification is 2 s.
func TestAHundredThousandNamesAreListed(t *testing.T) {
	longForm(t)
	t.Parallel() // a cluster of its own
	const names = 100_000
	cluster := harness.Start(t, harness.Options{})
	c := newClient(t, cluster, "names")
	id, err := seal.OpenIdentity(read(t, filepath.Join(c.home, "identity")), []byte("correct horse"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := id.FolderKey("names")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	var entries []seal.Entry
	for i := range names {
		name := fmt.Sprintf("holiday %06d.jpg", i)
		want[name] = true
		entries = append(entries, seal.Entry{Name: name, StorageKey: fmt.Sprintf("e/%032x", i), Size: int64(i), Modified: time.Unix(1_700_000_000, 0)})
	}
	if err := seal.NewIndex(indexIn{c, "names"}, "names", root, "").Put(t.Context(), entries...); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		began := time.Now()
		out := c.run("ls", "--encrypt", "s3://names", "--json")
		t.Logf("%d names in %s, with the passphrase", names, time.Since(began))
		var rows []struct{ Key string }
		if err := json.Unmarshal([]byte(out), &rows); err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, row := range rows {
			got[row.Key] = true
		}
		if len(rows) != names || !maps.Equal(got, want) {
			t.Errorf("%d rows, %d names", len(rows), len(got))
		}
	}
}
