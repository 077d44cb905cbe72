//go:build conformance

package conformance

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"testing"
	"time"

	"lukechampine.com/blake3"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// hashedWithin bounds how long a hash may take that is computed in the background, also
// while a node that has just died counts as alive.
const hashedWithin = 3 * time.Minute

// uneven uploads parts of a size that says nothing of the hash of all, and returns the
// hash.
func uneven(t *testing.T, o *objects, path string, parts int) string {
	t.Helper()
	const size = 5_000_001
	sum, all := blake3.New(32, nil), make([][]byte, parts)
	for i := range all {
		all[i] = harness.RandomBytes(size)
		sum.Write(all[i])
	}
	o.upload(path, all...)
	return hex.EncodeToString(sum.Sum(nil))
}

// toldHash waits until all running nodes answer with the hash of an object.
func toldHash(t *testing.T, o *objects, path, want string) {
	t.Helper()
	for _, n := range o.cluster.Live() {
		harness.Eventually(t, hashedWithin, "an object has its hash", func() (bool, error) {
			r, err := o.tryOn(n, http.MethodHead, path, nil)
			got := r.Header.Get("X-Holdfast-Blake3")
			if err == nil && got != "" && got != want {
				t.Fatalf("hash %s, want %s", got, want)
			}
			return err == nil && got == want, err
		})
	}
}

// TestHashesAreComputedInTheBackground promises that nodes compute the hash of uploads whose parts cannot tell it and
// of copies of them, also if the node that reads the object is killed.
func TestHashesAreComputedInTheBackground(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Env: []string{"HOLDFAST_S3_HASH_RATE=2MiB"}})
	o := newObjects(t, c, "hash@example.org")
	bucket := "/hash" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)

	want := uneven(t, o, bucket+"/k", 2)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/copy", nil, "x-amz-copy-source", bucket+"/k")
	before := o.ok(http.StatusOK, http.MethodHead, bucket+"/k", nil)
	toldHash(t, o, bucket+"/k", want)
	toldHash(t, o, bucket+"/copy", want)
	after := o.ok(http.StatusOK, http.MethodHead, bucket+"/k", nil)
	for _, name := range []string{"Etag", "Last-Modified", "X-Amz-Version-Id", "X-Holdfast-Cid"} {
		if before.Header.Get(name) != after.Header.Get(name) {
			t.Errorf("%s was %q and is %q", name, before.Header.Get(name), after.Header.Get(name))
		}
	}
	// Parts that are copies of objects, the first of a size that is no multiple of 1 KiB.
	first, second := harness.RandomBytes(5_000_001), harness.RandomBytes(77)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/first", first)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/second", second)
	joined := bucket + "/joined"
	id := o.begin(joined)
	for i, part := range []string{"/first", "/second"} {
		o.ok(http.StatusOK, http.MethodPut, fmt.Sprintf("%s?partNumber=%d&uploadId=%s", joined, i+1, id), nil, "x-amz-copy-source", bucket+part)
	}
	o.ok(http.StatusOK, http.MethodPost, joined+"?uploadId="+id, harness.CompletionOf(first, second))
	sum := blake3.Sum256(bytes.Join([][]byte{first, second}, nil))
	toldHash(t, o, joined, hex.EncodeToString(sum[:]))

	// The node that reads the object is killed while it does.
	want = uneven(t, o, bucket+"/killed", 6)
	var reader *harness.Node
	harness.Eventually(t, hashedWithin, "a node reads the object", func() (bool, error) {
		for _, n := range c.Live() {
			if n.Metrics()["holdfast_objects_hashing"] > 0 {
				reader = n
			}
		}
		return reader != nil, nil
	})
	reader.Kill()
	toldHash(t, o, bucket+"/killed", want)
	reader.Restart()
	harness.Eventually(t, hashedWithin, "the node that was killed has the hash too", func() (bool, error) {
		r, err := o.tryOn(reader, http.MethodHead, bucket+"/killed", nil)
		return err == nil && r.Header.Get("X-Holdfast-Blake3") == want, err
	})
	for _, n := range c.Live() {
		if left := n.Metrics()["holdfast_objects_unhashed"]; left != 0 {
			t.Errorf("%v versions are left", left)
		}
	}
}
