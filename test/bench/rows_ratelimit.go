package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// What two accounts send to one node: the rates are the defaults of the program
// but for the burst, so that the noisy one is above it at once.
const (
	accountRate   = 100 // requests a second that the node allows an account, and at once
	noisyTimes    = 10  // as many as that are sent
	noisyClients  = 16
	modestRate    = 50 // requests a second of the other account
	modestClients = 4
)

// measureRateLimit is what an account waits for while another one on its node sends
// ten times its rate: requirement A55.
func measureRateLimit(b *bench) {
	each := strconv.Itoa(accountRate)
	c := harness.Start(b, harness.Options{Env: append(rates(), "HOLDFAST_API_ACCOUNT_RATE="+each, "HOLDFAST_API_ACCOUNT_BURST="+each)})
	noisy, modest := newUser(b, c, "noisy"), newUser(b, c, "modest")
	source := harness.StartBoxo(b)
	file := source.AddRandom(1, heldBytes)[0]
	pins := c.Leader().Pins(modest.token)
	made, err := pins.Post(b.ctx, harness.Pin{CID: file.CID, Origins: source.Addrs})
	b.must(err)
	_, err = harness.WaitPinned(b.ctx, pins, made.RequestID, allPinned)
	b.must(err)

	body := pinBody(file.CID, "noisy", nil)
	turn := func(n int) request {
		if n%2 == 0 {
			return request{http.MethodPost, "/pins", body, http.StatusAccepted, nil}
		}
		return request{http.MethodGet, "/pins?limit=10", nil, http.StatusOK, nil}
	}
	alone, beside, much := &paced{make: turn}, &paced{make: turn}, &paced{make: turn}
	m := newMeter(c.Nodes, nil)
	alone.run(b, modest.leader, modestClients, modestRate)
	alone.row("an account alone, half POST /pins, half GET /pins, "+strconv.Itoa(modestRate)+"/s", "", m).print()

	m = newMeter(c.Nodes, nil)
	var both sync.WaitGroup
	both.Go(func() { beside.run(b, modest.leader, modestClients, modestRate) })
	much.run(b, noisy.leader, noisyClients, noisyTimes*accountRate)
	both.Wait()
	beside.row(fmt.Sprintf("the same, beside one that sends %s/s to the same node, of which %s/s are taken", much.perSecond(much.all()), much.perSecond(len(much.lat))),
		"2 times the p99 alone", m).print()
	for _, p := range []*paced{alone, beside, much} {
		b.must(p.err)
	}
	if alone.limited+beside.limited > 0 || much.limited == 0 {
		b.Fatalf("%d requests of the modest account and %d of the noisy one were told to wait", alone.limited+beside.limited, much.limited)
	}
}

// paced is requests at a rate, and what came of them. The answers are those that are
// wanted, or 429 or 503 for what came too soon.
type paced struct {
	make func(n int) request // the n-th one

	// mu guards the fields below.
	mu      sync.Mutex
	lat     latencies // of what was taken
	limited int
	err     error
	took    time.Duration
}

func (p *paced) all() int { return len(p.lat) + p.limited }

func (p *paced) perSecond(n int) string { return strconv.Itoa(int(float64(n) / p.took.Seconds())) }

func (p *paced) row(work, target string, m *meter) row {
	return row{work: work, result: "p99 " + ms(p.lat.at(0.99)), target: target, lat: p.lat, used: m.used()}
}

// run sends for the time of a load. A turn for which no client has time is left
// out, so that requests never pile up here.
func (p *paced) run(b *bench, to service, clients, rate int) {
	ctx, cancel := context.WithTimeout(b.ctx, b.load)
	defer cancel()
	turns := make(chan int)
	var all sync.WaitGroup
	var ended atomic.Bool
	for range clients {
		all.Go(func() {
			if err := p.client(b.ctx, to, turns); err != nil {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.err = err
				ended.Store(true)
			}
		})
	}
	began := time.Now()
	tick := time.NewTicker(time.Millisecond)
	for n := 0; ctx.Err() == nil && !ended.Load(); {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		for due := int(time.Since(began).Seconds() * float64(rate)); n < due; n++ {
			select {
			case turns <- n:
			default:
			}
		}
	}
	tick.Stop()
	close(turns)
	all.Wait()
	p.took = time.Since(began)
	slices.Sort(p.lat)
}

// client makes a request of each turn.
func (p *paced) client(ctx context.Context, to service, turns <-chan int) error {
	c, err := to.dial(ctx)
	if err != nil {
		return err
	}
	defer c.net.Close()
	for n := range turns {
		r := p.make(n)
		began := time.Now()
		a, err := c.do(r.method, r.path, r.body)
		took := time.Since(began)
		if err == nil && a.status != r.want && a.status != http.StatusTooManyRequests && a.status != http.StatusServiceUnavailable {
			err = fmt.Errorf("HTTP %d, want %d: %.300s", a.status, r.want, a.body)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", r.method, r.path, err)
		}
		p.mu.Lock()
		if a.status == r.want {
			p.lat = p.lat.keep(took)
		} else {
			p.limited++
		}
		p.mu.Unlock()
	}
	return nil
}
