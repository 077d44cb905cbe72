package main

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ipfs/go-cid"
	mh "github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

const (
	scaleClients = 64   // clients that create pins
	scaleGroups  = 1000 // values of the pair of meta that each pin has
	scaleRounds  = 50   // requests for each kind of list
)

// stages are numbers of pins, in ascending order. It implements flag.Value.
type stages []int

// String returns the numbers with commas between them.
func (s *stages) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*s), " ", ","), "[]")
}

// Set takes numbers with commas between them. It returns an error if one is not above the one before
// it.
func (s *stages) Set(text string) error {
	var got stages
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil {
			return err
		}
		if last := len(got) - 1; n <= 0 || last >= 0 && n <= got[last] {
			return fmt.Errorf("%d is not above the number before it", n)
		}
		got = append(got, n)
	}
	*s = got
	return nil
}

// measureScale fills a cluster with distinct pins and measures, at each number of the flag -scale,
// what one more pin costs, lists, objects, a restart after kill -9 and a join. The content of a pin
// is in its CID, so that no transfer is measured. By default the cluster has three nodes. With
// -scale-alone it has one node until all pins are there, which is faster, and then two nodes join.
func measureScale(b *bench) {
	if len(b.scale) == 0 {
		return
	}
	opts := harness.Options{Replication: 2, Env: storeEnv()}
	if b.scaleAlone {
		opts.Nodes, opts.Replication = 1, 1
	}
	c := harness.Start(b, opts)
	nodes := c.Nodes[:len(c.Nodes):len(c.Nodes)] // without those that join and are removed
	u := newUser(b, c, "scale")
	objects := bucketOf(b, c, u.token)
	made := 0
	for _, pins := range b.scale {
		note := strconv.Itoa(pins) + " pins"
		u.fillTo(nodes, made, pins, note)
		made = pins
		u.scaleLists(nodes, pins, note)
		if b.scaleAlone {
			u.measureKill(nodes[0], note)
			continue
		}
		objects.putTiny(note)
		u.measureKill(harness.Without(nodes, c.Leader())[0], note)
		joined := u.measureJoin(note)
		id := joined.Status().Node.ID
		joined.Kill()
		c.Leader().CLI("peers", "rm", id, "--force")
	}
	if b.scaleAlone {
		note := strconv.Itoa(made) + " pins"
		u.measureJoin(note)
		u.measureJoin(note + ", the second")
		c.Settle()
		objects.putTiny(note)
	}
}

// scaleLists measures lists by the newest pins, by a name, by a part of it and by a pair of meta.
func (u *user) scaleLists(nodes []*harness.Node, pins int, note string) {
	for _, list := range []struct{ work, query string }{
		{"limit=10", "limit=10"},
		{"an exact name", "name=" + url.QueryEscape(scaleName(pins/2))},
		{"a part of a name, limit=10", "limit=10&match=partial&name=" + url.QueryEscape(scaleName(pins / 2)[4:])},
		{"one pair of meta, limit=10", "limit=10&meta=" + url.QueryEscape(`{"group":"`+strconv.Itoa(scaleGroups/2)+`"}`)},
	} {
		u.list(nodes, "/pins?"+list.query, load{count: scaleRounds}, row{work: "GET /pins, " + list.work, note: note})
	}
}

// scaleName returns the name of pin n.
func scaleName(n int) string { return fmt.Sprintf("pin %09d", n) }

// scalePin returns the body of a request that creates pin n.
func scalePin(n int) []byte {
	id, err := mh.Sum(binary.BigEndian.AppendUint64(nil, uint64(n)), mh.IDENTITY, -1)
	if err != nil {
		panic(err) // the identity of 8 bytes always exists
	}
	return fmt.Appendf(nil, `{"cid":%q,"name":%q,"meta":{"group":"%d"}}`, cid.NewCidV1(cid.Raw, id), scaleName(n), n%scaleGroups)
}

// fillTo creates the pins from number from to number to, waits until all are pinned, and prints what
// each has cost. The processor time is that of all nodes, and the written bytes are those of one
// node.
func (u *user) fillTo(nodes []*harness.Node, from, to int, note string) {
	written := func() (sum int64) {
		for _, n := range nodes {
			bytes, err := harness.WrittenBytes(n.Pid())
			u.b.must(err)
			sum += bytes
		}
		return sum
	}
	clients := scaleClients
	if len(nodes) == 1 {
		clients = fillers
	}
	m, before := newMeter(nodes, nil), written()
	o, err := load{clients: clients, count: to - from, make: func(n int) request {
		return request{http.MethodPost, "/pins", scalePin(from + n), http.StatusAccepted, nil}
	}}.run(u.b.ctx, u.leader)
	u.b.must(err)
	u.waitPinned(to)
	used, each := m.used(), float64(to-from)
	row{
		work: fmt.Sprintf("POST /pins of distinct CIDs, %d clients, through the leader", clients), lat: o.lat, used: used,
		result: fmt.Sprintf("%s; %.2f ms of node time, %.1f KB written by a node for each", perSecond(o),
			float64(used.nodes)/float64(time.Millisecond)/each, float64(written()-before)/1000/each/float64(len(nodes))),
		note: strconv.Itoa(from) + " to " + note,
	}.print()
}

// measureKill kills a node and measures how long it takes to start again.
func (u *user) measureKill(n *harness.Node, note string) {
	measureStart(u.b, n, n.Kill, row{work: "start after kill -9, until ready", note: note})
	u.cluster.Settle()
}

// measureJoin adds a node and measures how long it takes until it is ready.
func (u *user) measureJoin(note string) *harness.Node {
	began := time.Now()
	joined := join(u.b, u.cluster)
	row{work: "a node joins, until ready", result: seconds(time.Since(began)), used: newMeter([]*harness.Node{joined}, nil).before, note: note}.print()
	return joined
}
