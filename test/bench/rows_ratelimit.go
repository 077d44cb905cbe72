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

// Request rates of the two accounts that use one node. The rate limits are the defaults of the
// program, but without a burst, so that the noisy account exceeds its limit at once.
const (
	accountRate   = 100 // rate limit of an account in requests per second, and the size of its burst
	noisyTimes    = 10  // the noisy account sends noisyTimes as many requests
	noisyClients  = 16
	modestRate    = 50 // requests per second of the other account
	modestClients = 4
)

// measureRateLimit measures the latency of an account while another account on the same node sends
// ten times as many requests as its rate limit allows (requirement A55).
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

// paced sends requests at a fixed rate and collects their results. An answer must have the expected
// status, or 429 or 503 if the request exceeded a rate limit.
type paced struct {
	make func(n int) request // returns the n-th request

	// mu guards the fields below.
	mu      sync.Mutex
	lat     latencies // latencies of the accepted requests
	limited int       // number of requests that were refused for their rate
	err     error
	took    time.Duration
}

func (p *paced) all() int { return len(p.lat) + p.limited }

func (p *paced) perSecond(n int) string { return strconv.Itoa(int(float64(n) / p.took.Seconds())) }

func (p *paced) row(work, target string, m *meter) row {
	return row{work: work, result: "p99 " + ms(p.lat.at(0.99)), target: target, lat: p.lat, used: m.used()}
}

// run sends requests for the duration of a load. If no client is free when a request is due, the
// request is left out, so that requests never queue up in bench.
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

// client sends one request for each number that it receives from turns.
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
