//go:build conformance

package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// A leader that is cut off.
const (
	cutFor, cutLong = 8 * time.Second, 30 * time.Second // at least
	cutFiles        = 200
	cutBefore       = 200 // acknowledged writes
	cutPause        = 50 * time.Millisecond
	// refusedSoon is refuseWithin, and as much again for a busy machine: a node uses up all of it before it refuses.
	refusedSoon  = 2 * refuseWithin
	healedWithin = time.Minute
)

// errOld says that an answer is from before a change that was acknowledged.
var errOld = errors.New("it answers from an old state")

// status returns what the service answered, 0 where it was no error of its own.
func status(err error) int {
	if api := (*harness.APIError)(nil); errors.As(err, &api) {
		return api.Status
	}
	return 0
}

// question is what a node is asked. No error is an answer that holds once the
// changes have been made that it asks for.
type question struct {
	what string
	ask  func(ctx context.Context) error
}

// cutLeader is a leader that is cut off while a fire burns.
type cutLeader struct {
	*fire
	leader *harness.Node
	others []*harness.Node
	s      *service    // with pins named old, fresh and doomed
	key    harness.Key // that is revoked

	old, doomed string // request ids

	began           time.Time   // of the cut
	changed, healed atomic.Bool // set after the changes, and before the healing
	refusals        []atomic.Int64
	slowest         atomic.Int64 // of the refusals, in ns
}

func (l *cutLeader) writeTo(ctx context.Context, n *harness.Node) error {
	_, err := l.try(ctx, slices.Index(l.c.Nodes, n), int(l.next.Add(1)), 0)
	return err
}

// questions are for the leader, about changes that the others made.
func (l *cutLeader) questions() []question {
	client := l.leader.Pins(l.s.token)
	return []question{
		{"a read", func(ctx context.Context) error {
			_, err := client.Get(ctx, l.old)
			return expect(err, http.StatusNotFound)
		}},
		{"a list", func(ctx context.Context) error {
			r, err := client.List(ctx, query("status", harness.AllStatuses))
			named := func(name string) bool {
				return slices.ContainsFunc(r.Results, func(p harness.PinStatus) bool { return p.Pin.Name == name })
			}
			if err == nil && (named("old") || !named("fresh")) {
				err = errOld
			}
			return err
		}},
		{"a key", func(ctx context.Context) error {
			_, err := l.leader.Pins(l.key.Token).List(ctx, nil)
			return expect(err, http.StatusUnauthorized)
		}},
		{"a write", func(ctx context.Context) error { return l.writeTo(ctx, l.leader) }},
		{"a delete", func(ctx context.Context) error {
			err := client.Delete(ctx, l.doomed)
			if status(err) == http.StatusNotFound { // one that was refused was done after all
				return nil
			}
			return err
		}},
	}
}

// change is made through the others.
func (l *cutLeader) change(ctx context.Context, t *testing.T) {
	t.Helper()
	other := l.others[0].Pins(l.s.token)
	if _, err := other.Post(ctx, harness.Pin{CID: nowhere().String(), Name: "fresh"}); err != nil {
		t.Fatal(err)
	}
	if err := other.Delete(ctx, l.old); err != nil {
		t.Fatal(err)
	}
	l.others[1].CLI("key", "revoke", l.key.ID)
	l.changed.Store(true)
}

// keepAsking asks the i-th question until ctx ends: while the leader is cut off
// nothing but a refusal will do, and after it nothing old.
func (l *cutLeader) keepAsking(ctx context.Context, t *testing.T, i int, q question) {
	for ; ctx.Err() == nil; harness.Pause(ctx, cutPause) {
		late, asked := l.changed.Load(), time.Now()
		err := q.ask(ctx)
		took := time.Since(asked)
		switch {
		case ctx.Err() != nil:
		case l.healed.Load():
			if late && err != nil && status(err) != http.StatusServiceUnavailable {
				t.Errorf("A3: %s through the leader that was cut off: %v", q.what, err)
				return // the next answers tell no more
			}
		case status(err) != http.StatusServiceUnavailable || !clean(err):
			t.Errorf("A3: %s through the leader that is cut off is not refused: %v", q.what, err)
			return
		case took > refusedSoon:
			t.Errorf("A3: %s through the leader that is cut off is refused after %v", q.what, took)
		default:
			l.refusals[i].Add(1)
			l.slowest.Store(max(l.slowest.Load(), int64(took))) // near enough
		}
	}
}

// writeAgain returns how long after the cut each of the others acknowledges a write.
func (l *cutLeader) writeAgain(ctx context.Context) []time.Duration {
	took := make([]time.Duration, len(l.others))
	var all sync.WaitGroup
	for i, n := range l.others {
		all.Go(func() {
			for ; ctx.Err() == nil; harness.Pause(ctx, time.Millisecond) {
				if l.writeTo(ctx, n) == nil {
					took[i] = time.Since(l.began)
					return
				}
			}
		})
	}
	all.Wait()
	return took
}

// heal connects the leader again and waits until it answers everything.
func (l *cutLeader) heal(ctx context.Context, t *testing.T) (took time.Duration) {
	t.Helper()
	l.healed.Store(true)
	l.leader.Heal()
	began := time.Now()
	for _, q := range l.questions() {
		harness.Eventually(t, healedWithin, q.what+" is answered again", func() (bool, error) {
			err := q.ask(ctx)
			if err != nil && status(err) != http.StatusServiceUnavailable {
				t.Errorf("A3: %s after healing: %v", q.what, err)
			}
			return err == nil, err
		})
	}
	return time.Since(began)
}

// TestALeaderThatIsCutOff promises that the others go on and a leader that is cut off refuses everything in time,
// while clients write through all nodes (A3). The leader hears nobody and nobody hears it. In the end there is one
// list with everything acknowledged on it once.
func TestALeaderThatIsCutOff(t *testing.T) {
	longForm(t)
	c := harness.Start(t, harness.Options{Replication: 2, Apart: true})
	source := c.StartBoxo()
	f := &fire{
		c: c, token: c.Nodes[0].UserKey("fire@example.org").Token,
		files: source.AddRandom(cutFiles, fireBytes), origins: source.Addrs,
	}
	l := &cutLeader{fire: f, s: newService(t, c, "cut@example.org"), key: c.Nodes[0].Key("cut@example.org")}
	l.old = l.s.post(harness.Pin{CID: nowhere().String(), Name: "old"}).RequestID
	l.doomed = l.s.post(harness.Pin{CID: nowhere().String(), Name: "doomed"}).RequestID
	wantEverywhere(t, c, l.key.Token, http.StatusOK, "before")

	ctx, cancel := context.WithTimeout(t.Context(), fireWithin)
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	working.Go(func() { f.clients(ctx) })
	harness.Eventually(t, pinnedWithin, "clients write", func() (bool, error) { return f.acknowledged() >= cutBefore, nil })

	l.leader = c.Leader()
	l.others = slices.DeleteFunc(slices.Clone(c.Nodes), func(n *harness.Node) bool { return n == l.leader })
	questions := l.questions()
	l.refusals = make([]atomic.Int64, len(questions))
	l.began = time.Now()
	l.leader.Cut()
	for i, q := range questions {
		working.Go(func() { l.keepAsking(ctx, t, i, q) })
	}
	outages := l.writeAgain(ctx)
	l.change(ctx, t)
	before := f.acknowledged()
	last := cutFor
	if *longFlag {
		last = cutLong
	}
	harness.Eventually(t, last+2*refusedSoon, "the leader refuses everything", func() (bool, error) {
		for i := range l.refusals {
			if l.refusals[i].Load() == 0 && !t.Failed() {
				return false, fmt.Errorf("it has not refused %s", questions[i].what)
			}
		}
		return time.Since(l.began) >= last, nil
	})
	if f.acknowledged() == before {
		t.Error("A3: the others acknowledged nothing more")
	}
	cut := time.Since(l.began)
	back := l.heal(ctx, t)
	harness.Pause(ctx, fireCalm)
	cancel()
	working.Wait()
	c.Settle()
	f.check(t)
	f.pinned(t)
	f.check(t)
	var refused []int64
	for i := range l.refusals {
		refused = append(refused, l.refusals[i].Load())
	}
	t.Logf("cut off for %v: others write again after %v; refused, by kind: %d, the slowest after %v; back after %v; %d attempts, %d acknowledged",
		cut.Round(time.Millisecond), outages, refused, time.Duration(l.slowest.Load()).Round(time.Millisecond), back.Round(time.Millisecond), len(f.attempts), f.acked)
}

// expect turns the wanted error into none, and none into errOld.
func expect(err error, want int) error {
	switch {
	case err == nil:
		return errOld
	case status(err) == want:
		return nil
	}
	return err
}
