package main

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// fillers is the number of clients that create the many pins. With many clients, more pins share
// one log entry.
const fillers = 256

// joinWithin is the longest time in which a new node must receive a large state.
const joinWithin = 10 * time.Minute

// tinyObject is the size in bytes of the objects that are stored in a cluster with very many pins.
const tinyObject = 1 << 10

// measureMillion reads pages of an account with very many pins, and starts a node that has them in
// its state. The pins are created on a cluster of one node, which is fastest. Then two more nodes
// join and receive the state. Objects are stored before, in a cluster without pins, and afterwards.
func measureMillion(b *bench) {
	if b.million == 0 {
		return
	}
	empty := newStore(b, harness.Options{Replication: 2})
	empty.putTiny("no pins")
	empty.putTiny("no pins, then")
	for _, n := range empty.cluster.Nodes {
		n.Stop()
	}
	c := harness.Start(b, harness.Options{Nodes: 1, Replication: 2, Env: storeEnv()})
	source := harness.StartBoxo(b)
	u := newUser(b, c, "million")
	files := source.AddRandom(heldRoots, heldBytes)
	u.post(u.leader, len(files), 0, files, source.Addrs)
	u.waitPinned(len(files))
	m := newMeter(c.Nodes, nil)
	o := u.fill(b.million-len(files), files)
	row{
		work: "POST /pins, " + strconv.Itoa(fillers) + " clients, one node alone", result: perSecond(o), lat: o.lat, used: m.used(),
		note: strconv.Itoa(b.million) + " pins",
	}.print()
	measureLists(b, c, u, b.million)
	measureStart(b, c.Nodes[0], c.Nodes[0].Stop, startRow(b.million))

	began := time.Now()
	for range 2 {
		join(b, c)
	}
	c.Settle()
	row{
		work: "two nodes join one after the other, until ready", result: seconds(time.Since(began)),
		note: strconv.Itoa(b.million) + " pins", used: newMeter(c.Nodes, nil).before,
	}.print()
	measureLists(b, c, u, b.million)
	objects := bucketOf(b, c, u.token)
	objects.putTiny(strconv.Itoa(b.million) + " pins, just after the joins")
	objects.putTiny(strconv.Itoa(b.million) + " pins, then")
}

// join adds a node to the cluster and waits until it is ready.
func join(b *bench, c *harness.Cluster) *harness.Node {
	joined := c.Add(c.JoinArgs(false)...)
	harness.Eventually(b, joinWithin, joined.Name+" has joined", func() (bool, error) {
		err := joined.WaitReady(b.ctx)
		return err == nil, err
	})
	return joined
}

// putTiny stores objects of 1 KiB through a follower and prints the row.
func (s *store) putTiny(note string) {
	s.run("PUT 1 KiB, 32 clients, 3 copies, "+note, "", s.at(s.cluster.Followers()[0]), s.puts(strings.ReplaceAll(note, " ", "-"), tinyObject, objectClients), 0)
}

// fill creates count pins of files that the cluster stores, and does not keep the answers. If count
// is not above 0, it creates none: a load without a number would have no end.
func (u *user) fill(count int, files []harness.Offered) outcome {
	if count <= 0 {
		return outcome{}
	}
	bodies := make([][]byte, len(files))
	for i, f := range files {
		bodies[i] = pinBody(f.CID, "bench", nil)
	}
	o, err := load{clients: fillers, count: count, make: func(n int) request {
		return request{http.MethodPost, "/pins", bodies[n%len(bodies)], http.StatusAccepted, nil}
	}}.run(u.b.ctx, u.leader)
	u.b.must(err)
	return o
}
