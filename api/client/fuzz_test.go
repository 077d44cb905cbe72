package client

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"lukechampine.com/blake3"
)

// FuzzSlice promises that no slice hands on a byte that the object does not have, and that only the true
// slice is complete.
func FuzzSlice(f *testing.F) {
	data := randomBytes(5000)
	root := Hash(blake3.Sum256(data))
	slice := func(off, n int) []byte {
		return sliceOf(data, url.Values{"start": {strconv.Itoa(off)}, "length": {strconv.Itoa(n)}})
	}
	f.Add(0, 5000, slice(0, 5000))
	f.Add(1024, 1, slice(1024, 1))
	f.Add(4999, 1, slice(4999, 1)[:100])
	f.Add(0, 1, []byte{})
	f.Fuzz(func(t *testing.T, off, n int, sent []byte) {
		if off < 0 || n < 1 || off >= len(data) || n > len(data)-off {
			return
		}
		var out bytes.Buffer
		written, reason, err := decodeSlice(&out, bytes.NewReader(sent), int64(off), int64(n), int64(len(data)), root)
		if err != nil || written != int64(out.Len()) || !bytes.HasPrefix(data[off:off+n], out.Bytes()) {
			t.Fatalf("%d bytes, %d counted, %v", out.Len(), written, err)
		}
		if whole := bytes.Equal(sent, slice(off, n)); (reason == "") != whole || whole && out.Len() != n {
			t.Errorf("%q after %d bytes of %d, the true slice: %t", reason, out.Len(), n, whole)
		}
	})
}

// FuzzJournal promises that the journal of an upload is read or refused, whatever a crash left in it, and
// that it names no part which an upload cannot have.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"bucket":"b","key":"k","path":"/f","size":5}` + "\n" + `{"upload_id":"u"}` + "\n" + `{"part":1,"etag":"e"}` + "\n" + `{"part":2,"et`))
	f.Add([]byte(`{"bucket":`))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := readJournal(path)
		if err != nil || j == nil {
			return
		}
		for number := range j.stored {
			if number < 1 || number > maxParts {
				t.Errorf("part %d", number)
			}
		}
	})
}
