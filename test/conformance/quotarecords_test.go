//go:build conformance

package conformance

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// freeMeta is what a record's texts may have without counting, in bytes (ADR 35).
const freeMeta = 1 << 10

// records: what pins, objects and open uploads say beyond 1 KiB counts as stored bytes.
func (q *quotas) records(t *testing.T) {
	const email = "records@example.org"
	c, at, known, each := q.cluster.As(t), q.at.As(t), q.known, q.each
	s := newService(t, c, email)
	used := func(what string, least, most uint64) {
		t.Helper()
		if got := user(t, at, email).StoredBytes; got < least || got > most {
			t.Errorf("%s: %d bytes are stored, not %d to %d", what, got, least, most)
		}
	}
	said := func(bytes int) harness.Pin {
		return harness.Pin{CID: known[0], Name: "a name", Meta: map[string]string{"m": strings.Repeat("x", bytes-len("a name")-1)}}
	}
	allow(at, email, each+40_000)
	small := s.post(said(freeMeta))
	used("a pin of 1 KiB", each, each)
	large := s.post(said(30_000))
	used("one of 30,000 bytes", each+30_000-freeMeta, each+30_000-freeMeta)
	for _, id := range []string{"", small.RequestID} {
		var err error
		if id == "" {
			_, err = s.next().Post(t.Context(), said(20_000))
		} else {
			_, err = s.next().Replace(t.Context(), id, said(20_000))
		}
		if !refusedForFunds(err) {
			t.Errorf("20,000 bytes where 11,024 are left, in the place of %q: %v", id, err)
		}
	}
	large = s.replace(large.RequestID, said(35_000)) // the net change has room
	used("replaced by one of 35,000", each+35_000-freeMeta, each+35_000-freeMeta)
	allow(at, email, 1)
	large = s.replace(large.RequestID, said(35_000))
	used("by one as large, above the allowance", each+35_000-freeMeta, each+35_000-freeMeta)
	s.delete(large.RequestID)
	used("the large one is deleted", each, each)
	s.delete(small.RequestID)
	used("both are", 0, 0)

	o := &objects{t: t, cluster: c, token: s.token, turn: s.turn}
	bucket := "/records" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)
	allow(at, email, 30_000)
	pad := func(bytes int) []string { return []string{"X-Amz-Meta-Pad", strings.Repeat("x", bytes)} }
	const slack = 100 // key, Content-Type and the name of the metadata
	o.ok(http.StatusOK, http.MethodPut, bucket+"/k", nil, pad(20_000)...)
	used("an object without content", 20_000-freeMeta, 20_000-freeMeta+slack)
	o.refused(http.StatusForbidden, "AccountProblem", http.MethodPut, bucket+"/l", nil, pad(20_000)...)
	o.refused(http.StatusForbidden, "AccountProblem", http.MethodPost, bucket+"/l?uploads", nil, pad(20_000)...)
	o.ok(http.StatusOK, http.MethodPut, bucket+"/k", nil, pad(25_000)...)
	used("another in its place", 25_000-freeMeta, 25_000-freeMeta+slack)
	o.ok(http.StatusNoContent, http.MethodDelete, bucket+"/k", nil)
	used("the object is deleted", 0, 0)
	begun := o.begin(bucket+"/l", pad(20_000)...)
	used("an upload", 20_000-freeMeta, 20_000-freeMeta+slack)
	o.ok(http.StatusNoContent, http.MethodDelete, bucket+"/l?uploadId="+begun, nil)
	used("the upload is aborted", 0, 0)
	o.ok(http.StatusNoContent, http.MethodDelete, bucket, nil)
}
