//go:build conformance

package conformance

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Shape of an upload whose parts are not all freed by the entry that ends it.
const (
	manyParts   = 700
	partBytes   = 1 << 10
	partClients = 16
	linkBytes   = 100 // of a part in the object's DAG, at most
)

// many returns an upload of many small parts.
func (u *uploads) many(key string) (id string, whole []byte, list []byte) {
	u.t.Helper()
	id = u.begin(key)
	etags := make([]any, 0, 2*manyParts)
	var work errgroup.Group
	work.SetLimit(partClients)
	for n := 1; n <= manyParts; n++ {
		data := harness.RandomBytes(partBytes)
		whole = append(whole, data...)
		etags = append(etags, n, harness.ETag(data))
		work.Go(func() error {
			r, err := u.tryOn(u.cluster.Nodes[n%len(u.cluster.Nodes)], http.MethodPut, fmt.Sprintf("%s/%s?partNumber=%d&uploadId=%s", u.bucket, key, n, id), data)
			if err == nil && r.Status != http.StatusOK {
				err = fmt.Errorf("part %d: %d %s", n, r.Status, r.Body)
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		u.t.Fatal(err)
	}
	return id, whole, harness.Completion(etags...)
}

// gone fails unless the upload is, on every node.
func (u *uploads) gone(key, id string) {
	u.t.Helper()
	path := u.bucket + "/" + key + "?uploadId=" + id
	for range u.cluster.Live() {
		u.refused(http.StatusNotFound, "NoSuchUpload", http.MethodGet, path, nil)
		u.refused(http.StatusNotFound, "NoSuchUpload", http.MethodPut, path+"&partNumber=1", []byte("late"))
		u.refused(http.StatusNotFound, "NoSuchUpload", http.MethodDelete, path, nil)
		if r := u.ok(http.StatusOK, http.MethodGet, u.bucket+"?uploads", nil); bytes.Contains(r.Body, []byte(id)) {
			u.t.Errorf("the upload is listed: %s", r.Body)
		}
	}
}

// TestUploadsOfManyPartsEndAtOnce promises that a completed or aborted upload is gone on every node at once, and that
// its parts are freed later, also if the leader dies in between. Then the account is charged for what there is, and
// nothing of the parts stays.
func TestUploadsOfManyPartsEndAtOnce(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	const email = "many@example.org"
	c := harness.Start(t, harness.Options{Env: []string{
		"HOLDFAST_S3_MIN_PART_SIZE=1KiB", "HOLDFAST_API_ACCOUNT_RATE=0", "HOLDFAST_API_ADDRESS_RATE=0",
	}})
	u := &uploads{newObjects(t, c, email), "/many" + randomName()}
	u.ok(http.StatusOK, http.MethodPut, u.bucket, nil)
	id, whole, list := u.many("done")
	aborted, _, _ := u.many("aborted")
	// There is room for the links to the parts, and not for the object beside its parts.
	c.Leader().CLI("user", "quota", email, fmt.Sprint(usedBy(t, c.Leader(), email)+manyParts*linkBytes))

	leader, at := c.Leader(), c.Followers()[0]
	path := u.bucket + "/done?uploadId=" + id
	first := u.callOn(at, http.MethodPost, path, list)
	leader.Kill()
	if first.Status != http.StatusOK {
		t.Fatalf("%d %s", first.Status, first.Body)
	}
	c.Leader() // another one
	u.gone("done", id)
	if again := u.ok(http.StatusOK, http.MethodPost, path, list); !bytes.Equal(again.Body, first.Body) {
		t.Errorf("told again it is\n%s\nand was\n%s", again.Body, first.Body)
	}
	u.ok(http.StatusNoContent, http.MethodDelete, u.bucket+"/aborted?uploadId="+aborted, nil)
	u.gone("aborted", aborted)
	more := harness.RandomBytes(manyParts * partBytes / 3) // for which there is room once all parts are freed
	harness.Eventually(t, crashSettledSoon, "what was aborted is free", func() (bool, error) {
		r := u.call(http.MethodPut, u.bucket+"/more", more)
		if r.Status == http.StatusServiceUnavailable && bytes.Contains(r.Body, []byte("<Code>SlowDown</Code>")) {
			return false, fmt.Errorf("%s", r.Body)
		}
		if r.Status != http.StatusOK {
			t.Fatalf("%d %s", r.Status, r.Body)
		}
		return true, nil
	})
	const objects = manyParts*partBytes + manyParts*partBytes/3
	harness.Eventually(t, crashSettledSoon, "the account is charged for its objects", func() (bool, error) {
		used := usedBy(t, at, email)
		if used < objects || used > objects+2*manyParts*linkBytes {
			return false, fmt.Errorf("for %d bytes, with objects of %d", used, objects)
		}
		return true, nil
	})

	leader.Restart()
	c.Settle()
	for range c.Nodes {
		if got := u.ok(http.StatusOK, http.MethodGet, u.bucket+"/done", nil); !bytes.Equal(got.Body, whole) {
			t.Errorf("the object has %d bytes", len(got.Body))
		}
	}
	for _, key := range []string{"/done", "/more"} {
		u.ok(http.StatusNoContent, http.MethodDelete, u.bucket+key, nil)
	}
	harness.Eventually(t, crashSettledSoon, "nothing is kept", func() (bool, error) {
		for _, n := range c.Nodes {
			if blocks := n.Metrics()["holdfast_blocks_stored"]; blocks > 0 {
				return false, fmt.Errorf("%s has %v blocks", n.Name, blocks)
			}
		}
		return true, nil
	})
	if used := usedBy(t, at, email); used != 0 {
		t.Errorf("in the end the account is charged for %d bytes", used)
	}
	if err := c.SameState(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPartsOfWholeObjectsMoveNoBytes promises that an object is copied into an upload while the only node that has
// its bytes is stopped.
func TestPartsOfWholeObjectsMoveNoBytes(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Replication: 1})
	u := &uploads{newObjects(t, c, "links@example.org"), "/links" + randomName()}
	u.ok(http.StatusOK, http.MethodPut, u.bucket, nil)
	at, holder := c.Leader(), c.Followers()[0]
	data, tail := harness.RandomBytes(6<<20), harness.RandomBytes(100)
	for key, body := range map[string][]byte{"/source": data, "/other": tail} {
		if r := u.callOn(holder, http.MethodPut, u.bucket+key, body); r.Status != http.StatusOK {
			t.Fatalf("%d %s", r.Status, r.Body)
		}
	}
	if blocks := at.Metrics()["holdfast_blocks_stored"]; blocks != 0 {
		t.Fatalf("%s has %v blocks", at.Name, blocks)
	}
	id := u.begin("made")
	holder.Pause()
	t.Cleanup(holder.Resume)
	copied := func(n int, source string, pairs ...string) string {
		t.Helper()
		r := u.callOn(at, http.MethodPut, fmt.Sprintf("%s/made?partNumber=%d&uploadId=%s", u.bucket, n, id), nil,
			append(pairs, "x-amz-copy-source", u.bucket+source)...)
		var result struct {
			XMLName xml.Name `xml:"CopyPartResult"`
			ETag    string
		}
		if err := xml.Unmarshal(r.Body, &result); err != nil || r.Status != http.StatusOK {
			t.Fatalf("%d %s, %v", r.Status, r.Body, err)
		}
		return result.ETag
	}
	first := copied(1, "/source", "x-amz-copy-source-range", fmt.Sprintf("bytes=0-%d", len(data)-1))
	last := copied(2, "/other")
	if first != harness.ETag(data) || last != harness.ETag(tail) {
		t.Errorf("ETags %s and %s", first, last)
	}
	holder.Resume()
	c.Settle()
	u.ok(http.StatusOK, http.MethodPost, u.bucket+"/made?uploadId="+id, harness.Completion(1, first, 2, last))
	for _, key := range []string{"/source", "/other"} {
		u.ok(http.StatusNoContent, http.MethodDelete, u.bucket+key, nil)
	}
	for range c.Nodes {
		if got := u.ok(http.StatusOK, http.MethodGet, u.bucket+"/made", nil); !bytes.Equal(got.Body, append(bytes.Clone(data), tail...)) {
			t.Errorf("the object has %d bytes", len(got.Body))
		}
	}
}
