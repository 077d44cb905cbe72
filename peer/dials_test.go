package peer

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

// dead dials for as long as one origin that says nothing.
func dead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, originDialTimeout)
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}

// crowd is many sessions that dial.
type crowd struct {
	d       *dials
	waiting sync.WaitGroup
	ctx     context.Context
	end     context.CancelFunc
}

func newCrowd(t *testing.T) *crowd {
	g := &crowd{d: newDials()}
	g.ctx, g.end = context.WithCancel(t.Context())
	return g
}

// dead has a session try so many dead origins again and again.
func (g *crowd) dead(s *Session, origins int) {
	for range origins {
		g.waiting.Go(func() {
			for g.ctx.Err() == nil {
				_ = g.d.run(g.ctx, s, 1, dead)
				backoff.Wait(g.ctx, originRedialFirst)
			}
		})
	}
}

// close waits for all, and wants every place back.
func (g *crowd) close(t *testing.T) {
	t.Helper()
	g.end()
	g.waiting.Wait()
	if d := g.d; d.free != originDials || d.leaving != 0 || len(d.accounts)+len(d.running)+len(d.waiting) != 0 {
		t.Errorf("left: %d of %d places free, %d leaving, %v, %d running, %d waiting", d.free, originDials, d.leaving, d.accounts, len(d.running), len(d.waiting))
	}
}

func (d *dials) has(account string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.accounts[account]
}

// A dial of another account gets its turn within originGrace while one account's dead origins hold all places.
func TestDeadOriginsOfOneAccountGiveWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newCrowd(t)
		for range 256 {
			g.dead(&Session{account: "many"}, MaxOrigins)
		}
		synctest.Wait()
		if got := g.d.has("many"); got != originDials {
			t.Fatalf("%d dials of an account alone, want %d", got, originDials)
		}
		for _, at := range []time.Duration{0, time.Second, time.Minute, time.Minute + 7*time.Second} {
			backoff.Wait(t.Context(), at)
			began := time.Now()
			if err := g.d.run(t.Context(), &Session{account: "one"}, 1, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > originGrace {
				t.Errorf("a dial of another account had its turn after %s", took)
			}
		}
		g.close(t)
	})
}

// Two accounts with dead origins come to half of the places each. Two sessions of one account come to half of its
// share each.
func TestDialsAreSharedByAccountsThenBySessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newCrowd(t)
		a, b := &Session{account: "one"}, &Session{account: "one"}
		g.dead(a, 2*originDials)
		backoff.Wait(t.Context(), time.Second)
		g.dead(b, 2*originDials)
		g.dead(&Session{account: "other"}, 2*originDials)
		backoff.Wait(t.Context(), 2*time.Minute)
		g.d.mu.Lock()
		for account, got := range g.d.accounts {
			if got != originDials/2 {
				t.Errorf("account %s has %d of %d places", account, got, originDials)
			}
		}
		for _, s := range []*Session{a, b} {
			if got := s.dialling.places; got != originDials/4 {
				t.Errorf("a session of two has %d of %d places", got, originDials)
			}
		}
		g.d.mu.Unlock()
		g.close(t)
	})
}

// A dial gives way only after originGrace, and only one gives way to one dial. The others run until
// originDialTimeout. A dial that is ended while it waits for several places leaves none taken.
func TestADialHasItsGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newCrowd(t)
		began := time.Now()
		ends := make(chan error, originDials)
		s := &Session{account: "many"}
		for range originDials {
			g.waiting.Go(func() { ends <- g.d.run(g.ctx, s, 1, dead) })
		}
		synctest.Wait()
		g.waiting.Go(func() {
			_ = g.d.run(g.ctx, &Session{account: "one"}, 1, func(context.Context) error { return nil })
		})
		if err := <-ends; !errors.Is(err, errGaveWay) || time.Since(began) != originGrace {
			t.Errorf("the first ended after %s: %v", time.Since(began), err)
		}
		for range originDials - 1 {
			if err := <-ends; !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != originDialTimeout {
				t.Errorf("another ended after %s: %v", time.Since(began), err)
			}
		}
		// An origin with many addresses waits for as many places; one that ends meanwhile
		// while it waits leaves nothing.
		ctx, cancel := context.WithCancel(g.ctx)
		for range originDials/8 + 1 {
			g.waiting.Go(func() { _ = g.d.run(ctx, s, 100, dead) })
		}
		synctest.Wait()
		if free, waiting := g.d.free, len(s.dialling.waiting); free != 0 || waiting != 1 {
			t.Errorf("%d free, %d waiting", free, waiting)
		}
		cancel()
		g.close(t)
	})
}

// A fetch from an origin that answers succeeds while the dead origins of another account hold all places.
func TestAFetchBesideDeadOrigins(t *testing.T) {
	t.Parallel()
	f := peertest.NewForeign(t)
	file, err := f.AddFile(bytes.NewReader(peertest.Bytes(1, 1<<20)), 256<<10)
	if err != nil {
		t.Fatal(err)
	}
	p := newTestPeer(t, newRoster())
	at := silent(t)
	for range 16 {
		var origins []string
		for range MaxOrigins {
			origins = append(origins, at+"/p2p/"+newID(t))
		}
		s := p.Session(t.Context(), "many", origins)
		defer s.Close()
	}
	until(t, "all places are taken", func() bool { return p.dials.has("many") == originDials })
	s := p.Session(t.Context(), "one", []string{f.Addrs()[0]})
	defer s.Close()
	if _, err := dag.Fetch(t.Context(), dag.FetchRequest{Root: file, Reference: "pin", Store: p.store.DAGStore(), Sources: []dag.Source{s}}); err != nil {
		t.Error(err)
	}
	if got := p.dials.has("many"); got < originDials-8 {
		t.Errorf("the others have %d places", got)
	}
}
