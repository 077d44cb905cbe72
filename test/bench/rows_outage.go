package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// measureOutage kills the leader again and again, and measures how long a client cannot write. If a
// node does not accept a write, the client tries the next node.
func measureOutage(b *bench) {
	c := harness.Start(b, harness.Options{Replication: 2, Env: rates()})
	u := newUser(b, c, "outage")
	file := harness.StartBoxo(b).AddRandom(1, heldBytes)[0]
	body := pinBody(file.CID, "outage", nil)
	var outages []time.Duration
	for range b.kills {
		leader := c.Leader()
		w := newWriter(b, c, u.token, body)
		w.write(b.ctx) // through the leader, or whoever comes first
		leader.Kill()
		killed := time.Now()
		w.write(b.ctx)
		outages = append(outages, time.Since(killed))
		w.close()
		leader.Restart()
		c.Settle()
	}
	slices.Sort(outages)
	row{
		work:   "write outage after kill -9 of the leader, " + strconv.Itoa(b.kills) + " times",
		result: fmt.Sprintf("median %s, worst %s", seconds(harness.Quantile(outages, 0.5)), seconds(outages[len(outages)-1])),
		target: "median 0.8 s, worst 1.5 s", lat: outages,
	}.print()
}

// writer is a client that writes through any node of the cluster.
type writer struct {
	b     *bench
	to    []service
	conns []*conn // connection to each node; nil if there is none
	at    int     // number of the node that accepted the last write
	body  []byte
}

func newWriter(b *bench, c *harness.Cluster, token string, body []byte) *writer {
	w := &writer{b: b, body: body}
	for _, n := range c.Nodes {
		s, err := newService(n.URL(), token)
		b.must(err)
		w.to = append(w.to, s)
	}
	w.conns = make([]*conn, len(w.to))
	return w
}

// write returns when a node has accepted a write.
func (w *writer) write(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	w.b.must(harness.Poll(ctx, time.Millisecond, func() (bool, error) {
		err := w.try(ctx)
		if err != nil {
			w.at = (w.at + 1) % len(w.to)
		}
		return err == nil, err
	}))
}

func (w *writer) try(ctx context.Context) error {
	c := w.conns[w.at]
	if c == nil {
		var err error
		if c, err = w.to[w.at].dial(ctx); err != nil {
			return err
		}
		w.conns[w.at] = c
	}
	a, err := c.do(http.MethodPost, "/pins", w.body)
	if err != nil {
		c.net.Close()
		w.conns[w.at] = nil
		return err
	}
	if a.status != http.StatusAccepted {
		return fmt.Errorf("HTTP %d: %.300s", a.status, a.body)
	}
	return nil
}

func (w *writer) close() {
	for _, c := range w.conns {
		if c != nil {
			c.net.Close()
		}
	}
}
