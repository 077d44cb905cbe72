package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// service is a pinning service at one base URL, with the token for its requests.
type service struct {
	base  *url.URL
	token string
}

func newService(base, token string) (service, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return service{}, fmt.Errorf("%q is not a base URL", base)
	}
	return service{u, token}, nil
}

// Limits of one request.
const (
	requestTimeout = 5 * time.Minute // enough for 64 large bodies at the same time
	readBuffer     = 64 << 10
	sinkBuffer     = 256 << 10 // bytes of a discarded body that are read at a time
)

// conn is one HTTP/1.1 connection that is used for many requests. The client of net/http takes
// several times as much processor time, which on a small machine would be missing in the service
// that is measured.
type conn struct {
	service
	net net.Conn
	in  *bufio.Reader
	out []byte

	discard bool   // discard the bodies of successful answers
	sink    []byte // memory into which discarded bodies are read
}

// answer is the answer to a request.
type answer struct {
	status int
	body   []byte
}

func (s service) dial(ctx context.Context) (*conn, error) {
	host := s.base.Host
	if s.base.Port() == "" {
		host = net.JoinHostPort(s.base.Hostname(), s.base.Scheme)
	}
	var d interface {
		DialContext(ctx context.Context, network, addr string) (net.Conn, error)
	} = &net.Dialer{Timeout: requestTimeout}
	if s.base.Scheme == "https" {
		d = &tls.Dialer{}
	}
	c, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	return &conn{service: s, net: c, in: bufio.NewReaderSize(c, readBuffer)}, nil
}

// do sends a request and reads the whole answer. headers are additional headers: name, value, name,
// value and so on.
func (c *conn) do(method, path string, body []byte, headers ...string) (answer, error) {
	b := append(c.out[:0], method...)
	b = append(append(append(b, ' '), c.base.Path...), path...)
	b = append(append(b, " HTTP/1.1\r\nHost: "...), c.base.Host...)
	b = append(append(b, "\r\nAuthorization: Bearer "...), c.token...)
	if body != nil {
		b = append(b, "\r\nContent-Type: application/json\r\nContent-Length: "...)
		b = strconv.AppendInt(b, int64(len(body)), 10)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		b = append(append(append(append(b, "\r\n"...), headers[i]...), ": "...), headers[i+1]...)
	}
	b = append(b, "\r\n\r\n"...)
	if len(body) <= readBuffer {
		b, body = append(b, body...), nil
	}
	c.out = b
	if err := c.net.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return answer{}, err
	}
	if _, err := c.net.Write(b); err != nil {
		return answer{}, err
	}
	if _, err := c.net.Write(body); err != nil {
		return answer{}, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	if c.discard && resp.StatusCode < http.StatusMultipleChoices {
		if c.sink == nil {
			c.sink = make([]byte, sinkBuffer)
		}
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, c.sink)
		return answer{status: resp.StatusCode}, err
	}
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, data}, err
}

// request is one request of a load, and the status code that its answer must have.
type request struct {
	method, path string
	body         []byte
	want         int
	headers      []string // name, value, name, value and so on
}

// outcome is the result of a load.
type outcome struct {
	lat    latencies
	took   time.Duration
	bodies [][]byte // bodies of the answers, if load.keep is true
}

func (o outcome) rate() float64 { return float64(len(o.lat)) / o.took.Seconds() }

// load describes requests that several clients send at the same time, each over its own connection.
// It ends after count requests or after the given time, whichever comes first.
type load struct {
	clients int
	count   int                 // number of requests; 0 means no limit
	time    time.Duration       // duration; 0 means no limit
	keep    bool                // return the bodies of the answers
	discard bool                // do not store the bodies in memory
	make    func(n int) request // returns the n-th request
	done    func(request)       // called with each request that was answered; may be nil
}

func (l load) run(ctx context.Context, to service) (outcome, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if l.time > 0 {
		defer time.AfterFunc(l.time, stop).Stop()
	}
	var next atomic.Int64
	results := make([]outcome, l.clients)
	began := time.Now()
	all, ctx := errgroup.WithContext(ctx) // one failure tells enough
	for i := range l.clients {
		all.Go(func() error { return l.client(ctx, to, &next, &results[i]) })
	}
	err := all.Wait()
	total := outcome{took: time.Since(began)}
	for _, r := range results {
		total.lat = append(total.lat, r.lat...)
		total.bodies = append(total.bodies, r.bodies...)
	}
	slices.Sort(total.lat)
	return total, err
}

func (l load) client(ctx context.Context, to service, next *atomic.Int64, into *outcome) error {
	c, err := to.dial(ctx)
	if err != nil {
		return err
	}
	defer c.net.Close()
	for ctx.Err() == nil {
		n := int(next.Add(1)) - 1
		if l.count > 0 && n >= l.count {
			return nil
		}
		r := l.make(n)
		began := time.Now()
		c.discard = l.discard
		a, err := c.do(r.method, r.path, r.body, r.headers...)
		if err != nil {
			return fmt.Errorf("%s %s: %w", r.method, r.path, err)
		}
		if l.done != nil {
			l.done(r)
		}
		if a.status != r.want {
			return fmt.Errorf("%s %s: HTTP %d, want %d: %.300s", r.method, r.path, a.status, r.want, a.body)
		}
		into.lat = append(into.lat, time.Since(began))
		if l.keep {
			into.bodies = append(into.bodies, a.body)
		}
	}
	return nil
}

// pinBody returns the JSON body of a POST /pins.
func pinBody(cid, name string, origins []string) []byte {
	pin := map[string]any{"cid": cid, "name": name}
	if len(origins) > 0 {
		pin["origins"] = origins
	}
	data, err := json.Marshal(pin)
	if err != nil {
		panic(err) // strings and lists of them always encode
	}
	return data
}

// requestIDs returns the request ids in answers to POST /pins.
func requestIDs(bodies [][]byte) ([]string, error) {
	ids := make([]string, len(bodies))
	for i, body := range bodies {
		var s struct{ RequestID string }
		if err := json.Unmarshal(body, &s); err != nil || s.RequestID == "" {
			return nil, fmt.Errorf("no requestid in %.300s: %w", body, err)
		}
		ids[i] = s.RequestID
	}
	return ids, nil
}
