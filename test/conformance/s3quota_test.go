//go:build conformance

package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Sizes of A52. In short everything is a tenth.
const (
	quotaRoomLong   = 500 << 20 // what an account may store without credits
	quotaObjectLong = 100_000_000
	quotaTenth      = 10
	// quotaSlack is what the nodes above the leaves of the content may add to it.
	quotaSlack = 1 << 20
)

// objects is A52: writers on three nodes put objects, pin content, and do both, all
// for one account that has room for some of it.
func (q *quotas) objects(t *testing.T) {
	room, size := quotaRoomLong/quotaTenth, quotaObjectLong/quotaTenth
	if *longFlag {
		room, size = quotaRoomLong, quotaObjectLong
	}
	files := q.source.As(t).AddRandomChunked(quotaWriters, size, 1<<20)
	for _, tc := range []struct {
		name string
		pins func(writer int) bool
		long bool // in short, races show it
	}{
		{"puts", func(int) bool { return false }, false},
		{"puts and pins", func(w int) bool { return w%2 == 0 }, false},
		{"pins", func(int) bool { return true }, true},
	} {
		if tc.long && !*longFlag {
			continue
		}
		t.Run(tc.name, func(t *testing.T) { q.crowd(t, uint64(room), size, files, tc.pins) })
	}
}

// crowd returns all writers store something at once, and deletes what got a place.
func (q *quotas) crowd(t *testing.T, room uint64, size int, files []harness.Offered, pins func(int) bool) {
	const email = "crowd@example.org"
	c, at := q.cluster.As(t), q.at.As(t)
	before := usedBytes(t, c)
	s := newService(t, c, email)
	o := &objects{t: t, cluster: c, token: s.token, turn: s.turn}
	allow(at, email, room)
	bucket := "/crowd" + randomName()
	o.ok(http.StatusOK, http.MethodPut, bucket, nil)

	ctx, stop := context.WithCancel(t.Context())
	var watching, writing sync.WaitGroup
	watching.Go(func() { // as the sum is at any moment
		for ctx.Err() == nil {
			if row := user(t, at, email); row.StoredBytes > room {
				t.Errorf("%d bytes are stored, and %d allowed", row.StoredBytes, room)
				return
			}
			harness.Pause(ctx, 100*time.Millisecond)
		}
	})
	stored := make([]string, quotaWriters) // by writer: the path of an object, or a pin
	for w := range quotaWriters {
		n := c.Nodes[w%len(c.Nodes)]
		if pins(w) {
			writing.Go(func() {
				stored[w] = crowdPin(t, n.Pins(s.token), harness.Pin{CID: files[w].CID, Origins: q.source.Addrs})
			})
			continue
		}
		path, body := fmt.Sprintf("%s/%d", bucket, w), harness.RandomBytes(size)
		writing.Go(func() {
			r, err := o.tryOn(n, http.MethodPut, path, body)
			switch {
			case err != nil:
				t.Error(err)
			case r.Status == http.StatusOK:
				stored[w] = path
			default:
				if code := into[s3Error](t, r).Code; r.Status != http.StatusForbidden || code != "AccountProblem" {
					t.Errorf("a put for which there is no room: %d %s", r.Status, r.Body)
				}
			}
		})
	}
	writing.Wait()
	stop()
	watching.Wait()

	count := uint64(0)
	for _, what := range stored {
		if what != "" {
			count++
		}
	}
	row := user(t, at, email)
	if sum := count * uint64(size); count == 0 || count == quotaWriters || row.ComingBytes != 0 || row.StoredBytes > room ||
		row.StoredBytes < sum || row.StoredBytes > sum+count*quotaSlack {
		t.Errorf("%d of %d writers stored %d bytes each, and charged are %+v", count, quotaWriters, size, row)
	}
	t.Logf("%d of %d writers stored %d bytes each, %d are charged of %d", count, quotaWriters, size, row.StoredBytes, room)
	q.uncrowd(t, o, s, bucket, stored, pins)
	if row := user(t, at, email); row.StoredBytes+row.ComingBytes != 0 {
		t.Errorf("with all deleted: %+v", row)
	}
	freed(t, c, before, pinnedWithin, "the blocks go")
	at.CLIWithInput("another good password\n", "user", "passwd", email)
	at.CLI("user", "rm", email)
}

// crowdPin pins content and returns the id of the pin, or nothing when there was no
// room for it.
func crowdPin(t *testing.T, client *harness.PinsClient, p harness.Pin) string {
	st, err := client.Post(t.Context(), p)
	if refusedForFunds(err) {
		return ""
	}
	if err == nil {
		err = harness.Poll(t.Context(), 100*time.Millisecond, func() (bool, error) {
			st, err = client.Get(t.Context(), st.RequestID)
			return err == nil && (st.Status == "pinned" || st.Status == "failed"), err
		})
	}
	if err != nil {
		t.Error(errors.Join(err, t.Context().Err()))
		return ""
	}
	if st.Status == "failed" {
		return "" // it turned out to be too large while it came
	}
	return st.RequestID
}

// uncrowd deletes what was stored, and pins that failed.
func (q *quotas) uncrowd(t *testing.T, o *objects, s *service, bucket string, stored []string, pins func(int) bool) {
	t.Helper()
	for w, what := range stored {
		if what != "" && !pins(w) {
			o.ok(http.StatusNoContent, http.MethodDelete, what, nil)
		}
	}
	everything, err := s.next().ListAll(t.Context(), query("status", "queued,pinning,pinned,failed"), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range everything {
		s.delete(p.RequestID)
	}
	o.ok(http.StatusNoContent, http.MethodDelete, bucket, nil)
}
