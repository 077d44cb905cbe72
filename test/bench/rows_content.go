package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// addAtOnce is the number of files that the foreign peer adds in one request.
const addAtOnce = 5_000

// measureContent pins small files of a foreign peer, and deletes some of the pins.
func measureContent(b *bench) {
	c := harness.Start(b, harness.Options{Replication: 2, Env: rates()})
	source := harness.StartBoxo(b)
	u := newUser(b, c, "content")
	var created [][]byte
	for _, size := range []struct {
		count  int
		target string
	}{{b.small, "1.5 s; 1.5 ms of processor time each"}, {b.many, "12 s; 1.5 ms of processor time each"}} {
		if size.count == 0 {
			continue
		}
		var files []harness.Offered
		for n := size.count; n > 0; n -= addAtOnce {
			files = append(files, source.AddRandom(min(n, addAtOnce), heldBytes)...)
		}
		m := newMeter(c.Nodes, source)
		began := time.Now()
		o := u.post(u.leader, len(files), 0, files, source.Addrs)
		created = append(created, o.bodies...)
		u.waitPinned(len(created))
		took := time.Since(began)
		used := m.used()
		each := float64(used.nodes+used.source) / float64(time.Millisecond) / float64(len(files))
		row{
			work: strconv.Itoa(len(files)) + " pins of 1 KiB, from the first POST to all pinned", target: size.target,
			result: fmt.Sprintf("%s; %.2f ms each (nodes alone %.2f)", seconds(took), each, float64(used.nodes)/float64(time.Millisecond)/float64(len(files))),
			lat:    o.lat, used: used, note: "POST at " + perSecond(o),
		}.print()
	}
	share := max(1, int(b.removed*float64(max(b.crowd, len(created)))))
	created = measureDelete(b, c, u, created, len(created), share)
	more := b.crowd - len(created)
	if more <= 0 {
		return
	}
	// The others share content, which is the quickest way to have them: what
	// deleting costs must not depend on them.
	held := source.AddRandom(heldRoots, heldBytes)
	o := u.post(u.leader, len(held), 0, held, source.Addrs)
	u.waitPinned(len(created) + len(o.lat))
	u.fill(more-len(o.lat), held)
	u.waitPinned(b.crowd)
	measureDelete(b, c, u, created, b.crowd, share)
}

// measureDelete deletes count of the pins, whose content no other pin shares, and waits until no
// node stores their blocks. Meanwhile another client reads. It returns the remaining elements of
// created.
func measureDelete(b *bench, c *harness.Cluster, u *user, created [][]byte, pins, count int) [][]byte {
	ids, err := requestIDs(created)
	b.must(err)
	count = min(count, len(ids)/2)
	gone, kept := ids[:count], ids[len(ids)/2:]
	stored := func() (sum float64) {
		for _, n := range c.Nodes {
			sum += n.Metrics()["holdfast_blocks_stored"]
		}
		return sum
	}
	want := stored() - 2*float64(len(gone)) // one block each, on two nodes
	m := newMeter(c.Nodes, nil)
	ctx, cancel := context.WithCancel(b.ctx)
	var read outcome
	reading := make(chan error, 1)
	go func() {
		var err error
		read, err = load{clients: 1, make: func(n int) request {
			return request{http.MethodGet, "/pins/" + kept[n%len(kept)], nil, http.StatusOK, nil}
		}}.run(ctx, u.leader)
		reading <- err
	}()
	began := time.Now()
	o, err := load{clients: readers, count: len(gone), make: func(n int) request {
		return request{http.MethodDelete, "/pins/" + gone[n], nil, http.StatusAccepted, nil}
	}}.run(b.ctx, u.leader)
	if err == nil {
		wait, done := context.WithTimeout(b.ctx, allPinned)
		err = harness.Poll(wait, pollEvery, func() (bool, error) {
			now := stored()
			return now <= want, fmt.Errorf("%.0f blocks are stored, want %.0f", now, want)
		})
		done()
	}
	took := time.Since(began)
	cancel()
	failed := <-reading
	b.must(err)
	b.must(failed)
	used := m.used()
	row{
		work:   fmt.Sprintf("delete %d of %d pins, until their blocks are gone", count, pins),
		result: seconds(took) + "; DELETE at " + perSecond(o), target: "no request above 50 ms",
		lat: o.lat, used: used,
	}.print()
	row{work: "GET /pins/{id}, 1 client, meanwhile", result: "worst " + ms(read.lat.at(1)), target: "no request above 50 ms", lat: read.lat}.print()
	return created[count:]
}

// measureLarge pins a large DAG, on a cluster of one node and on one of three.
func measureLarge(b *bench) {
	source := harness.StartBoxo(b)
	file := source.AddRandom(1, b.large)[0]
	for _, size := range []struct {
		nodes        int
		name, target string
	}{{1, "one node", "1.2 s"}, {3, "three nodes", "2.5 s"}} {
		err := scope(b.ctx, b.settings, func(b *bench) {
			c := harness.Start(b, harness.Options{Nodes: size.nodes, Replication: size.nodes, Env: rates()})
			u := newUser(b, c, "large")
			m := newMeter(c.Nodes, source)
			began := time.Now()
			u.post(u.leader, 1, 0, []harness.Offered{file}, source.Addrs)
			u.waitPinned(1)
			pinned := time.Since(began)
			harness.Eventually(b, allPinned, "every node holds the DAG", func() (bool, error) {
				for _, n := range c.Nodes {
					if n.Metrics()["holdfast_roots_under_replicated"] > 0 {
						return false, nil
					}
				}
				return true, nil
			})
			var copied float64
			for _, n := range c.Nodes {
				copied += n.Metrics()["holdfast_peer_block_bytes_pulled_total"]
			}
			row{
				work:   fmt.Sprintf("DAG of %d MiB pinned on %s", file.Size>>20, size.name),
				note:   fmt.Sprintf("%.0f MiB of it from other members", copied/(1<<20)),
				result: fmt.Sprintf("pinned %s, everywhere %s", seconds(pinned), seconds(time.Since(began))),
				target: size.target, used: m.used(),
			}.print()
		})
		b.must(err)
	}
}
