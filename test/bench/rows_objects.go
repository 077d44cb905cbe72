package main

import (
	"context"
	"encoding/binary"
	"encoding/xml"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Sizes of the load on the object gateway.
const (
	objectClients = 32 // clients of small objects
	largeClients  = 4
	smallObject   = 64 << 10
	largeObject   = 64 << 20
	rangeBytes    = 1 << 10
	parallelPuts  = 64
	tinyPart      = 1 << 10
	uploadRounds  = 3
	others        = 2       // clients that store small objects while an upload is completed or aborted
	chunkBytes    = 1 << 20 // size of a block in bytes
)

// store is an account of the object gateway with a bucket.
type store struct {
	b       *bench
	cluster *harness.Cluster
	token   string
	bucket  string
}

func newStore(b *bench, o harness.Options) *store {
	o.Env = storeEnv()
	return objectsOf(b, harness.Start(b, o))
}

// storeEnv returns the environment of nodes whose limits are so high that they accept all objects
// of a measurement.
func storeEnv() []string {
	return append(rates(), "HOLDFAST_S3_MIN_PART_SIZE=1KiB", "HOLDFAST_ACCOUNTS_ALLOWANCE=1TiB")
}

// objectsOf creates an account with a bucket, on a cluster that was started with storeEnv.
func objectsOf(b *bench, c *harness.Cluster) *store {
	return bucketOf(b, c, c.Nodes[0].UserKey("objects@example.org").Token)
}

// bucketOf creates a bucket of the account that a token belongs to. A group that also sends other
// requests needs one account for all: nodes would hold back the objects of a second account for
// some seconds, because the first one has sent few requests (ADR 48).
func bucketOf(b *bench, c *harness.Cluster, token string) *store {
	s := &store{b: b, cluster: c, token: token, bucket: "/bench"}
	s.one(s.at(c.Leader()), http.MethodPut, s.bucket, nil)
	return s
}

func (s *store) at(n *harness.Node) service {
	to, err := newService(n.S3URL(), s.token)
	s.b.must(err)
	return to
}

// one sends one request and returns the answer. It ends the group with a failure unless the status
// code is 200 or 204.
func (s *store) one(to service, method, path string, body []byte, headers ...string) answer {
	c, err := to.dial(s.b.ctx)
	s.b.must(err)
	defer c.net.Close()
	a, err := c.do(method, path, body, headers...)
	if err == nil && a.status != http.StatusOK && a.status != http.StatusNoContent {
		err = fmt.Errorf("%s %s: HTTP %d: %.300s", method, path, a.status, a.body)
	}
	s.b.must(err)
	return a
}

// run sends a load and prints its row. If bytes is not 0, each request transfers this many bytes,
// and the result is in MiB per second.
func (s *store) run(work, target string, to service, l load, bytes int) {
	m := newMeter(s.cluster.Live(), nil)
	o, err := l.run(s.b.ctx, to)
	s.b.must(err)
	used := m.used()
	result := perSecond(o)
	if bytes > 0 {
		result = fmt.Sprintf("%.0f MiB/s", o.rate()*float64(bytes)/(1<<20))
	}
	each := float64(used.nodes) / float64(time.Millisecond) / float64(len(o.lat))
	row{work: work, result: fmt.Sprintf("%s; %.2f ms of node time each", result, each), target: target, lat: o.lat, used: used}.print()
}

// puts returns a load that stores objects of one size, each under its own key. No two chunks of
// these objects are equal.
func (s *store) puts(prefix string, size, clients int) load {
	base := make([]byte, size)
	for i := 0; i < len(base); i += 8 {
		binary.LittleEndian.PutUint64(base[i:], rand.Uint64())
	}
	// One of each client, used again. All are made before anything is sent: that takes so
	// long for large ones that nodes would not wait for the first requests.
	bodies := make(chan []byte, clients)
	for range clients {
		bodies <- slices.Clone(base)
	}
	return load{
		clients: clients, time: s.b.load, discard: true, done: func(r request) { bodies <- r.body },
		make: func(n int) request {
			body := <-bodies
			for at := 0; at < len(body); at += chunkBytes {
				binary.LittleEndian.PutUint64(body[at:], uint64(n)<<32|rand.Uint64()&0xffffffff)
			}
			return request{http.MethodPut, fmt.Sprintf("%s/%s/%08d", s.bucket, prefix, n), body, http.StatusOK, nil}
		},
	}
}

// measureObjects measures requests of the object gateway.
func measureObjects(b *bench) {
	s := newStore(b, harness.Options{})
	node := s.cluster.Followers()[0]
	to := s.at(node)
	s.run("PUT 64 KiB, 32 clients, 3 copies", "1,700/s, p99 60 ms", to, s.puts("small", smallObject, objectClients), 0)
	s.run("PUT 64 MiB, 4 clients, 3 copies", "250 MiB/s", to, s.puts("large", largeObject, largeClients), largeObject)
	s.run("GET 64 KiB, 32 clients, local copy", "8,000/s, p99 12 ms", to, load{
		clients: objectClients, time: b.load, discard: true, make: func(n int) request {
			return request{http.MethodGet, fmt.Sprintf("%s/small/%08d", s.bucket, n%200), nil, http.StatusOK, nil}
		},
	}, 0)
	s.run("GET 64 MiB, 4 clients, local copy", "2,800 MiB/s", to, load{
		clients: largeClients, time: b.load, discard: true, make: func(n int) request {
			return request{http.MethodGet, fmt.Sprintf("%s/large/%08d", s.bucket, n%4), nil, http.StatusOK, nil}
		},
	}, largeObject)
	s.measureCopies(to)

	single := newStore(b, harness.Options{Nodes: 1})
	to = single.at(single.cluster.Leader())
	single.run("PUT 64 KiB, 32 clients, one node", "3,500/s", to, single.puts("small", smallObject, objectClients), 0)
	single.run("PUT 64 MiB, 4 clients, one node", "500 MiB/s", to, single.puts("large", largeObject, largeClients), largeObject)

	measureElsewhere(b)
}

// measureMemory stores many large objects at the same time, after a load of few, and measures the
// memory of the nodes.
func measureMemory(b *bench) {
	s := newStore(b, harness.Options{})
	to := s.at(s.cluster.Followers()[0])
	s.run("PUT 64 MiB, 4 clients, 3 copies", "250 MiB/s", to, s.puts("large", largeObject, largeClients), largeObject)
	peak := make(chan int64, 1)
	ctx, stop := context.WithCancel(s.b.ctx)
	go func() {
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		var most int64
		for {
			for _, n := range s.cluster.Nodes {
				most = max(most, resident(n.Pid()))
			}
			select {
			case <-ctx.Done():
				peak <- most
				return
			case <-tick.C:
			}
		}
	}()
	l := s.puts("memory", s.b.object, parallelPuts)
	l.count, l.time = parallelPuts, 0
	o, err := l.run(s.b.ctx, to)
	stop()
	s.b.must(err)
	row{
		work: fmt.Sprintf("%d parallel PUTs of %d MiB", parallelPuts, s.b.object>>20), result: fmt.Sprintf("at most %d MiB resident on one node", <-peak>>20),
		target: "below 400 MiB", lat: o.lat,
	}.print()
}

// measureKeys lists a bucket with many keys.
func measureKeys(b *bench) {
	s := newStore(b, harness.Options{})
	to := s.at(s.cluster.Followers()[0])
	l := load{clients: objectClients, count: s.b.keys, make: func(n int) request {
		return request{http.MethodPut, fmt.Sprintf("%s/list/%03d/%08d", s.bucket, n%1000, n), []byte{}, http.StatusOK, nil}
	}}
	s.run(fmt.Sprintf("PUT of %d empty objects, 32 clients", s.b.keys), "", to, l, 0)
	for what, query := range map[string]string{"without delimiter": "", "with delimiter": "&delimiter=/"} {
		s.run(fmt.Sprintf("list 1,000 of %d keys %s, 1 client", s.b.keys, what), "10 ms", to, load{
			clients: 1, count: listRounds, make: func(int) request {
				return request{http.MethodGet, s.bucket + "?list-type=2&prefix=list/" + query, nil, http.StatusOK, nil}
			},
		}, 0)
	}
}

// begin starts a multipart upload and returns the path with the upload id.
func (s *store) begin(to service, key string) string {
	var up struct {
		UploadID string `xml:"UploadId"`
	}
	s.b.must(xml.Unmarshal(s.one(to, http.MethodPost, s.bucket+"/"+key+"?uploads", nil).body, &up))
	return s.bucket + "/" + key + "?uploadId=" + up.UploadID
}

// partsOf has the bodies of the parts of an upload, and their ETags.
type partsOf struct {
	bodies [][]byte
	etags  []string
}

// differing returns parts of one size with random bytes, different ones in each call.
func differing(parts, size int) (p partsOf) {
	for range parts {
		body := make([]byte, size)
		binary.LittleEndian.PutUint64(body, rand.Uint64())
		p.bodies = append(p.bodies, body)
		p.etags = append(p.etags, harness.ETag(body))
	}
	return p
}

// equal returns parts of one size that all have the same bytes, so that the nodes store few bytes.
func equal(parts, size int) (p partsOf) {
	p = differing(1, size)
	for range parts - 1 {
		p.bodies, p.etags = append(p.bodies, p.bodies[0]), append(p.etags, p.etags[0])
	}
	return p
}

// complete completes an upload and returns how long the request took.
func (s *store) complete(to service, path string, p partsOf) time.Duration {
	var pairs []any
	for i, etag := range p.etags {
		pairs = append(pairs, i+1, etag)
	}
	list := harness.Completion(pairs...)
	began := time.Now()
	s.one(to, http.MethodPost, path, list)
	return time.Since(began)
}

// parts starts an upload, stores its parts and returns the path of the upload.
func (s *store) parts(to service, key string, p partsOf, clients int) (path string) {
	path = s.begin(to, key)
	_, err := load{clients: clients, count: len(p.bodies), make: func(n int) request {
		return request{http.MethodPut, fmt.Sprintf("%s&partNumber=%d", path, n+1), p.bodies[n], http.StatusOK, nil}
	}}.run(s.b.ctx, to)
	s.b.must(err)
	return path
}

func (s *store) upload(to service, key string, p partsOf, clients int) {
	s.complete(to, s.parts(to, key, p, clients), p)
}

// measureUploads completes and aborts uploads of many parts while other clients store small
// objects.
func measureUploads(b *bench) {
	s := newStore(b, harness.Options{})
	to := s.at(s.cluster.Followers()[0])
	beside := func(while string) func() {
		ctx, stop := context.WithCancel(b.ctx)
		l := s.puts(while, tinyPart, others)
		ended := make(chan error, 1)
		var o outcome
		go func() {
			var err error
			o, err = l.run(ctx, to)
			ended <- err
		}()
		return func() {
			select { // what was left is freed by then
			case <-time.After(l.time):
			case <-b.ctx.Done():
			}
			stop()
			b.must(<-ended)
			row{work: fmt.Sprintf("PUT 1 KiB, %d clients, beside %s", others, while), result: perSecond(o), lat: o.lat}.print()
		}
	}
	for range uploadRounds {
		p := differing(b.parts, tinyPart)
		path := s.parts(to, "parts", p, objectClients)
		end := beside("completing")
		row{work: fmt.Sprintf("complete an upload of %d parts", b.parts), result: ms(s.complete(to, path, p)), target: "300 ms for 10,000"}.print()
		end()
	}
	path := s.parts(to, "parts", differing(b.parts, tinyPart), objectClients)
	end := beside("aborting")
	began := time.Now()
	s.one(to, http.MethodDelete, path, nil)
	row{work: fmt.Sprintf("abort an upload of %d parts", b.parts), result: ms(time.Since(began))}.print()
	end()
}

// measureCopies measures the copy of a huge object.
func (s *store) measureCopies(to service) {
	s.upload(to, "huge", equal(s.b.huge/largeObject, largeObject), largeClients)
	var all latencies
	for i := range 10 {
		began := time.Now()
		s.one(to, http.MethodPut, fmt.Sprintf("%s/copy/%d", s.bucket, i), nil, "X-Amz-Copy-Source", s.bucket+"/huge")
		all = append(all, time.Since(began))
	}
	all = all.sorted()
	row{work: fmt.Sprintf("copy of an object of %d MiB", s.b.huge>>20), result: "p50 " + ms(all.at(0.5)), target: "20 ms", lat: all}.print()
}

// measureElsewhere measures reads through a node that has no copy of the content.
func measureElsewhere(b *bench) {
	s := newStore(b, harness.Options{Replication: 1})
	from := s.at(s.cluster.Followers()[0])
	s.upload(from, "huge", equal(s.b.huge/largeObject, largeObject), largeClients)
	body := make([]byte, largeObject)
	for i := range body {
		body[i] = byte(rand.Uint32())
	}
	s.one(from, http.MethodPut, s.bucket+"/large", body)
	to := s.at(s.cluster.Followers()[1])
	s.run("GET 64 MiB, 4 clients, through a node without a copy", "600 MiB/s", to, load{
		clients: largeClients, time: b.load, discard: true, make: func(int) request {
			return request{http.MethodGet, s.bucket + "/large", nil, http.StatusOK, nil}
		},
	}, largeObject)
	c, err := to.dial(b.ctx)
	b.must(err)
	defer c.net.Close()
	var all latencies
	for range listRounds {
		at := rand.Int64N(int64(s.b.huge - rangeBytes))
		began := time.Now()
		a, err := c.do(http.MethodGet, s.bucket+"/huge", nil, "Range", fmt.Sprintf("bytes=%d-%d", at, at+rangeBytes-1))
		if err == nil && (a.status != http.StatusPartialContent || len(a.body) != rangeBytes) {
			err = fmt.Errorf("range: HTTP %d and %d bytes", a.status, len(a.body))
		}
		b.must(err)
		all = append(all, time.Since(began))
	}
	all = all.sorted()
	row{work: fmt.Sprintf("1 KiB range of %d MiB, on a node without a copy", s.b.huge>>20), result: "p50 " + ms(all.at(0.5)), target: "10 ms", lat: all}.print()
}
