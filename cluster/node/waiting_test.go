package node

import (
	"errors"
	"os"
	"slices"
	"testing"

	mh "github.com/multiformats/go-multihash"
)

// The roots that wait for their announcement are read as they were written, and of a file that is cut the whole ones
// are read with an error.
func TestRootsThatWaitAreRead(t *testing.T) {
	f := folder{t.TempDir()}
	var hashes []mh.Multihash
	for _, text := range []string{"one", "two", "three"} {
		for _, code := range []uint64{mh.SHA2_256, mh.IDENTITY, mh.SHA2_512} {
			hash, err := mh.Sum([]byte(text), code, -1)
			if err != nil {
				t.Fatal(err)
			}
			hashes = append(hashes, hash)
		}
	}
	for range 2 {
		if got, err := f.waiting(); err != nil || len(got) > 0 {
			t.Errorf("of no file %d are read, %v", len(got), err)
		}
		if err := f.keepWaiting(hashes); err != nil {
			t.Fatal(err)
		}
		if got, err := f.waiting(); err != nil || !slices.EqualFunc(got, hashes, slices.Equal) {
			t.Errorf("%d of %d are read, %v", len(got), len(hashes), err)
		}
		if err := f.keepWaiting(nil); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(f.file(waitingFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file is there without a root: %v", err)
		}
	}
	if err := os.WriteFile(f.file(waitingFile), append(slices.Clone([]byte(hashes[0])), 0x12, 0x20, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := f.waiting(); err == nil || len(got) != 1 {
		t.Errorf("of a file that is cut %d are read, %v; want the first, and to be told", len(got), err)
	}
}
