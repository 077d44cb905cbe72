package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

const noisyObject = 1 << 10 // bytes

// measureNoisy measures the latency of an account of the object gateway while another account
// stores as many small objects as it can, on the same node and on other nodes. All rate limits have
// the defaults of the program.
func measureNoisy(b *bench) {
	c := harness.Start(b, harness.Options{DefaultRates: true, Env: []string{"HOLDFAST_ACCOUNTS_ALLOWANCE=1TiB"}})
	node, another := c.Followers()[0], c.Followers()[1]
	account := func(name string) *store {
		s := &store{b: b, cluster: c, token: c.Nodes[0].UserKey(name + "@example.org").Token, bucket: "/" + name}
		s.one(s.at(node), http.MethodPut, s.bucket, nil)
		return s
	}
	modest, noisy := account("modest"), account("noisy")
	read := modest.bucket + "/read"
	modest.one(modest.at(node), http.MethodPut, read, make([]byte, noisyObject))
	run := rand.Uint64()
	turn := func(n int) request {
		if n%2 == 0 {
			return request{http.MethodPut, fmt.Sprintf("%s/%x/%d", modest.bucket, run, n), make([]byte, noisyObject), http.StatusOK, nil}
		}
		return request{http.MethodGet, read, nil, http.StatusOK, nil}
	}
	alone := &paced{make: turn}
	m := newMeter(c.Nodes, nil)
	alone.run(b, modest.at(node), modestClients, modestRate)
	alone.row("an account of the gateway alone, half PUT, half GET of 1 KiB, "+strconv.Itoa(modestRate)+"/s, on a follower", "", m).print()
	accepted(b, alone)
	for _, at := range []struct {
		name  string
		nodes []*harness.Node
	}{
		{"the same node", []*harness.Node{node}},
		{"the other follower", []*harness.Node{another}},
		{"the leader", []*harness.Node{c.Leader()}},
		{"all nodes", c.Nodes},
	} {
		beside := &paced{make: turn}
		m := newMeter(c.Nodes, nil)
		var both sync.WaitGroup
		both.Go(func() { beside.run(b, modest.at(node), modestClients, modestRate) })
		stored, err := noisy.flood(b.ctx, strings.ReplaceAll(at.name, " ", "-"), at.nodes)
		both.Wait()
		b.must(err)
		beside.row(fmt.Sprintf("the same, beside one whose %d clients store %.0f/s on %s", objectClients, stored, at.name),
			"2 times the p99 alone", m).print()
		accepted(b, beside)
	}
}

// flood stores small objects with objectClients clients, which are divided among the nodes, for the
// duration of a load. It returns the number of objects stored per second.
func (s *store) flood(ctx context.Context, prefix string, nodes []*harness.Node) (stored float64, err error) {
	rates := make([]float64, len(nodes))
	all, ctx := errgroup.WithContext(ctx)
	for i, n := range nodes {
		clients := (objectClients + i) / len(nodes)
		all.Go(func() error {
			o, err := s.puts(prefix+"-"+strconv.Itoa(i), noisyObject, clients).run(ctx, s.at(n))
			rates[i] = o.rate()
			return err
		})
	}
	err = all.Wait()
	for _, rate := range rates {
		stored += rate
	}
	return stored, err
}

// accepted ends the group with a failure if a request of p failed or was refused for its rate.
func accepted(b *bench, p *paced) {
	b.must(p.err)
	if p.limited > 0 {
		b.Fatalf("%d requests of the modest account were refused", p.limited)
	}
}
