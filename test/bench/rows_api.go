package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Sizes of the load on the pinning API.
const (
	writers    = 32 // clients that create pins
	readers    = 8  // clients that read single pins
	heldRoots  = 256
	heldBytes  = 1 << 10 // size of one small file in bytes
	listRounds = 200
)

// allPinned is the longest time in which content must be pinned.
const allPinned = 10 * time.Minute

// pollEvery is the interval at which progress is checked, and so the largest error of a time that
// is measured in this way.
const pollEvery = 10 * time.Millisecond

// user is an account of a cluster, with a service for the leader and for a follower.
type user struct {
	b        *bench
	cluster  *harness.Cluster
	token    string
	leader   service
	follower service // the leader if the cluster has one node
}

// newUser creates an account. It assumes that the cluster does not change its leader while no node
// is killed.
func newUser(b *bench, c *harness.Cluster, name string) *user {
	u := &user{b: b, cluster: c, token: c.Nodes[0].UserKey(name + "@example.org").Token}
	var err error
	u.leader, err = newService(c.Leader().URL(), u.token)
	b.must(err)
	u.follower = u.leader
	if followers := c.Followers(); len(followers) > 0 {
		u.follower, err = newService(followers[0].URL(), u.token)
		b.must(err)
	}
	return u
}

// post sends count requests POST /pins to the service to, for the files in turn. If count is 0, it
// sends requests for the time within.
func (u *user) post(to service, count int, within time.Duration, files []harness.Offered, origins []string) outcome {
	bodies := make([][]byte, len(files))
	for i, f := range files {
		bodies[i] = pinBody(f.CID, "bench", origins)
	}
	o, err := load{clients: writers, count: count, time: within, keep: true, make: func(n int) request {
		return request{http.MethodPost, "/pins", bodies[n%len(bodies)], http.StatusAccepted, nil}
	}}.run(u.b.ctx, to)
	u.b.must(err)
	return o
}

// count returns how many pins of the account have a status.
func (u *user) count(c *conn, status string) (int, error) {
	a, err := c.do(http.MethodGet, "/pins?limit=1&status="+status, nil)
	if err != nil {
		return 0, err
	}
	var list struct{ Count int }
	if err := json.Unmarshal(a.body, &list); err != nil || a.status != http.StatusOK {
		return 0, fmt.Errorf("count: HTTP %d: %.300s", a.status, a.body)
	}
	return list.Count, nil
}

// waitPinned waits until the account has want pinned pins.
func (u *user) waitPinned(want int) {
	ctx, cancel := context.WithTimeout(u.b.ctx, allPinned)
	defer cancel()
	c, err := u.leader.dial(ctx)
	u.b.must(err)
	defer c.net.Close()
	u.b.must(harness.Poll(ctx, pollEvery, func() (bool, error) {
		got, err := u.count(c, "pinned")
		return got >= want, cmp.Or(err, fmt.Errorf("%d of %d pins are pinned", got, want))
	}))
}

// measureAPI measures the requests of the pinning API, for content that the cluster already stores.
func measureAPI(b *bench) {
	c := harness.Start(b, harness.Options{Replication: 2, Env: rates()})
	measureIdle(b, c)
	source := harness.StartBoxo(b)
	u := newUser(b, c, "api")
	files := source.AddRandom(heldRoots, heldBytes)
	u.post(u.leader, len(files), 0, files, source.Addrs)
	u.waitPinned(len(files))

	pins := len(files)
	var last outcome
	for _, at := range []struct {
		name, target string
		to           service
	}{
		{"leader", "8,000/s, p99 25 ms", u.leader}, {"follower", "5,500/s", u.follower},
	} {
		m := newMeter(c.Nodes, source)
		last = u.post(at.to, 0, b.load, files, nil)
		pins += len(last.lat)
		row{work: "POST /pins, 32 clients, through the " + at.name, result: perSecond(last), target: at.target, lat: last.lat, used: m.used()}.print()
	}
	if more := b.pins - pins; more > 0 {
		last = u.post(u.leader, more, 0, files, nil)
		pins = b.pins
	}
	measureReads(b, c, u, last.bodies, pins)
	follower := c.Followers()[0]
	measureStart(b, follower, follower.Stop, startRow(pins))
}

func perSecond(o outcome) string { return strconv.Itoa(int(o.rate())) + "/s" }

// measureIdle measures the processor time and memory of a cluster that gets no requests.
func measureIdle(b *bench, c *harness.Cluster) {
	harness.Pause(b.ctx, b.idle) // what starting left behind is done first
	m := newMeter(c.Nodes, nil)
	began := time.Now()
	harness.Pause(b.ctx, b.idle) // that nothing happens is what is measured
	used := m.used()
	each := used.nodes.Seconds() / time.Since(began).Seconds() / float64(len(c.Nodes)) * 100
	most := int64(0)
	for _, r := range used.resident {
		most = max(most, r)
	}
	row{
		work: "idle node, " + b.idle.String(), target: "90 MiB, 1 % of a core", used: used,
		result: fmt.Sprintf("%d MiB, %.1f %% of a core", most>>20, each),
	}.print()
}

// measureReads measures requests for single pins and for pages of a list.
func measureReads(b *bench, c *harness.Cluster, u *user, created [][]byte, pins int) {
	ids, err := requestIDs(created[:min(len(created), 1000)])
	b.must(err)
	for _, at := range []struct {
		name string
		to   service
	}{{"leader", u.leader}, {"follower", u.follower}} {
		m := newMeter(c.Nodes, nil)
		o, err := load{clients: readers, time: b.load, make: func(n int) request {
			return request{http.MethodGet, "/pins/" + ids[n%len(ids)], nil, http.StatusOK, nil}
		}}.run(b.ctx, at.to)
		b.must(err)
		row{work: "GET /pins/{id}, 8 clients, at the " + at.name, result: perSecond(o), target: "8,000/s", lat: o.lat, used: m.used()}.print()
	}
	measureLists(b, c, u, pins)
}

// measureLists measures requests for pages of an account's pins.
func measureLists(b *bench, c *harness.Cluster, u *user, pins int) {
	for _, page := range []struct {
		limit  int
		target string
	}{{10, "p50 2 ms"}, {1000, "p50 25 ms"}} {
		path := "/pins?limit=" + strconv.Itoa(page.limit)
		u.list(c.Nodes, path, load{count: listRounds, time: b.load}, row{
			work: "GET " + path, target: page.target, note: strconv.Itoa(pins) + " pins, " + members(len(c.Nodes)),
		})
	}
}

// list sends the leader requests for a list, one after the other, and prints a row. l says how many
// or for how long.
func (u *user) list(nodes []*harness.Node, path string, l load, r row) {
	m := newMeter(nodes, nil)
	l.clients, l.make = 1, func(int) request { return request{http.MethodGet, path, nil, http.StatusOK, nil} }
	o, err := l.run(u.b.ctx, u.leader)
	u.b.must(err)
	r.result, r.lat, r.used = "p50 "+ms(o.lat.at(0.5)), o.lat, m.used()
	r.print()
}

func members(n int) string {
	if n == 1 {
		return "one node"
	}
	return strconv.Itoa(n) + " nodes"
}

// startRow describes a start of a node whose state has so many pins.
func startRow(pins int) row {
	return row{work: "start, until ready", target: "3 s, 250 MiB with 1,000,000", note: strconv.Itoa(pins) + " pins"}
}

// measureStart ends a node and measures how long it takes to start again. r has what the row says of
// it.
func measureStart(b *bench, n *harness.Node, end func(), r row) {
	end()
	began := time.Now()
	n.Restart()
	b.must(n.WaitReady(b.ctx))
	took := time.Since(began)
	used := newMeter([]*harness.Node{n}, nil).before
	r.result = fmt.Sprintf("%s, %d MiB", seconds(took), used.resident[0]>>20)
	r.used = usage{nodes: processorTime(n.Pid()), resident: used.resident, anonymous: used.anonymous}
	r.print()
}
