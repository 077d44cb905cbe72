package main

import (
	"context"
	"crypto/rand"
	"net/http"
	"strconv"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// cleanTimeout is the longest time for removing the pins that a run has created.
const cleanTimeout = 10 * time.Minute

// measureService measures a pinning service that is already running at the base URLs, with pins of
// content that no peer has.
func measureService(b *bench, bases []string) {
	var all []service
	for _, base := range bases {
		s, err := newService(base, b.token)
		b.must(err)
		all = append(all, s)
	}
	var bodies [][]byte
	for range heldRoots {
		hash, err := multihash.Sum([]byte(rand.Text()), multihash.SHA2_256, -1)
		b.must(err)
		bodies = append(bodies, pinBody(cid.NewCidV1(cid.Raw, hash).String(), "bench", nil))
	}
	var created [][]byte
	b.Cleanup(func() { b.remove(all[0], created) })
	for i, s := range all {
		o, err := load{clients: writers, time: b.load, keep: true, make: func(n int) request {
			return request{http.MethodPost, "/pins", bodies[n%len(bodies)], http.StatusAccepted, nil}
		}}.run(b.ctx, s)
		created = append(created, o.bodies...)
		b.must(err)
		row{work: "POST /pins, 32 clients, at " + bases[i], result: perSecond(o), lat: o.lat}.print()
	}
	ids, err := requestIDs(created[:min(len(created), 1000)])
	b.must(err)
	gets := []struct {
		work    string
		clients int
		path    func(n int) string
	}{
		{"GET /pins/{id}, 8 clients", readers, func(n int) string { return "/pins/" + ids[n%len(ids)] }},
		{"GET /pins?limit=10", 1, func(int) string { return "/pins?limit=10&status=queued,pinning,pinned,failed" }},
		{"GET /pins?limit=1000", 1, func(int) string { return "/pins?limit=1000&status=queued,pinning,pinned,failed" }},
	}
	for _, get := range gets {
		o, err := load{clients: get.clients, time: b.load, make: func(n int) request {
			return request{http.MethodGet, get.path(n), nil, http.StatusOK, nil}
		}}.run(b.ctx, all[0])
		b.must(err)
		row{work: get.work, result: perSecond(o), lat: o.lat, note: strconv.Itoa(len(created)) + " pins"}.print()
	}
}

// remove deletes the pins that a run has created, also after the run was interrupted.
func (b *bench) remove(at service, created [][]byte) {
	ids, err := requestIDs(created)
	if err != nil {
		b.Errorf("clean up: %w", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), cleanTimeout)
	defer cancel()
	o, err := load{clients: readers, count: len(ids), make: func(n int) request {
		return request{http.MethodDelete, "/pins/" + ids[n], nil, http.StatusAccepted, nil}
	}}.run(ctx, at)
	if err != nil {
		b.Errorf("clean up: %w", err)
		return
	}
	row{work: "DELETE /pins/{id}, 8 clients", result: perSecond(o), lat: o.lat}.print()
}
