package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Sizes of the steady work.
const (
	soakClients  = 8
	soakLive     = 1_000 // number of pins; each new pin replaces the oldest or is followed by its deletion
	soakSmall    = 3_000 // number of small files of heldBytes bytes, which are pinned in turn
	soakLarge    = 80    // number of large files
	soakBytes    = 1 << 20
	largeEvery   = 25 // every pin of this number is of a large file
	listEvery    = 50 // number of pins after which a page of the list is read
	replaceEvery = 10 // number of pins after which one pin replaces the oldest
	soakSamples  = 120
	measured     = 1_000 // number of pins that are made to measure the largest possible rate
	behindMost   = 2     // seconds of work that may wait for a free client
)

// measureSoak lets a cluster work at a steady rate for a long time: content is pinned, fetched,
// listed and deleted, and its pins are read. The memory, files and disk space that the nodes use
// must stop growing.
func measureSoak(b *bench) {
	if b.soak == 0 {
		return
	}
	c := harness.Start(b, harness.Options{Replication: 2, Env: rates()})
	source := harness.StartBoxo(b)
	u := newUser(b, c, "soak")
	w := &soak{b: b, user: u, origins: source.Addrs}
	w.rate = b.soakRate
	if w.rate == 0 {
		files := source.AddRandom(measured, heldBytes)
		began := time.Now()
		o := u.post(u.leader, len(files), 0, files, source.Addrs)
		u.waitPinned(len(files))
		w.rate = max(1, int(measured/time.Since(began).Seconds()/2))
		w.adopt(o.bodies)
	}
	w.small = w.bodies(source.AddRandom(soakSmall, heldBytes))
	w.large = w.bodies(source.AddRandom(soakLarge, soakBytes))

	m := newMeter(c.Nodes, source)
	watch := newSeries(c.Nodes)
	ctx, cancel := context.WithTimeout(b.ctx, b.soak)
	defer cancel()
	var all sync.WaitGroup
	turns := make(chan int, w.rate*behindMost)
	all.Go(func() { w.pace(ctx, turns) })
	errs := make([]error, soakClients)
	for i := range soakClients {
		all.Go(func() {
			if errs[i] = w.client(ctx, turns); errs[i] != nil {
				cancel()
			}
		})
	}
	watch.run(ctx, b.soak/soakSamples)
	all.Wait()
	b.must(cmp.Or(errs...))
	u.waitPinned(w.live())
	row{
		work:   "soak of " + b.soak.String() + ", " + strconv.Itoa(w.rate) + " pins/s made and deleted",
		result: fmt.Sprintf("%d pins, %d put off; %s", w.made.Load(), w.late.Load(), watch.verdict()),
		target: "levels off", lat: w.latencies(), used: m.used(),
	}.print()
	if b.soak >= soakShown {
		watch.print()
	}
	if b.series != "" {
		b.must(watch.save(b.series))
	}
	if grown := watch.grown(); len(grown) > 0 && b.soak >= soakJudged {
		b.Errorf("soak: %v", grown)
	}
}

// soak is the state of the steady work.
type soak struct {
	b            *bench
	user         *user
	origins      []string
	small, large [][]byte // bodies of POST /pins for small and large files
	rate         int      // pins per second
	made, late   atomic.Int64

	// mu guards the fields below.
	mu  sync.Mutex
	ids []string // ids of the existing pins, the oldest first
	lat latencies
}

func (w *soak) bodies(files []harness.Offered) [][]byte {
	var out [][]byte
	for _, f := range files {
		out = append(out, pinBody(f.CID, "soak", w.origins))
	}
	return out
}

func (w *soak) adopt(created [][]byte) {
	ids, err := requestIDs(created)
	w.b.must(err)
	w.ids = append(w.ids, ids...)
}

func (w *soak) live() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ids)
}

func (w *soak) latencies() latencies {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lat.sorted()
}

// pace sends a number to turns for each pin that is due at the rate. If no client is free, it
// counts the turn as late and leaves it out, so that work never queues up.
func (w *soak) pace(ctx context.Context, turns chan<- int) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	began := time.Now()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := int(time.Since(began).Seconds() * float64(w.rate)); n < due; n++ {
			select {
			case turns <- n:
			default:
				w.late.Add(1)
			}
		}
	}
}

// client runs turn for each number that it receives, over its own connections, until ctx ends.
func (w *soak) client(ctx context.Context, turns <-chan int) error {
	to := []service{w.user.leader, w.user.follower}
	var conns []*conn
	for _, s := range to {
		c, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer c.net.Close()
		conns = append(conns, c)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-turns:
			if err := w.turn(conns[n%len(conns)], n); err != nil {
				return err
			}
		}
	}
}

// turn makes a pin, reads it and deletes the oldest pin. In some turns it replaces the oldest pin
// instead, or also reads a page of the list. n is the number of the turn.
func (w *soak) turn(c *conn, n int) error {
	body := w.small[n%len(w.small)]
	if n%largeEvery == 0 {
		body = w.large[n/largeEvery%len(w.large)]
	}
	path, oldest := "/pins", w.oldest()
	if oldest != "" && n%replaceEvery == 1 {
		path, oldest = "/pins/"+oldest, ""
	}
	began := time.Now()
	made, err := w.ask(c, http.MethodPost, path, body, http.StatusAccepted)
	if err != nil {
		return err
	}
	took := time.Since(began)
	var pin struct{ RequestID string }
	if err := json.NewDecoder(bytes.NewReader(made.body)).Decode(&pin); err != nil {
		return fmt.Errorf("POST %s: %w in %.300s", path, err, made.body)
	}
	w.mu.Lock()
	w.ids = append(w.ids, pin.RequestID)
	w.lat = w.lat.keep(took)
	w.mu.Unlock()
	w.made.Add(1)
	if _, err := w.ask(c, http.MethodGet, "/pins/"+pin.RequestID, nil, http.StatusOK); err != nil {
		return err
	}
	if n%listEvery == 0 {
		if _, err := w.ask(c, http.MethodGet, "/pins?limit=100", nil, http.StatusOK); err != nil {
			return err
		}
	}
	if oldest != "" {
		_, err = w.ask(c, http.MethodDelete, "/pins/"+oldest, nil, http.StatusAccepted)
	}
	return err
}

// oldest removes the oldest pin from the list and returns its id. The caller deletes the pin. The
// result is "" while there are fewer than soakLive pins.
func (w *soak) oldest() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ids) < soakLive {
		return ""
	}
	id := w.ids[0]
	w.ids = w.ids[1:]
	return id
}

func (w *soak) ask(c *conn, method, path string, body []byte, want int) (answer, error) {
	a, err := c.do(method, path, body)
	if err == nil && a.status != want {
		err = fmt.Errorf("HTTP %d, want %d: %.300s", a.status, want, a.body)
	}
	if err != nil {
		return a, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return a, nil
}
