package ipfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/boxo/gateway"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

// Memory that a request reserves, in bytes.
const (
	// fileMemory is for one leaf of a file and for the nodes in the cache of the request.
	fileMemory = 2 << 20
	// tarMemory is for the ten leaves that boxo reads ahead for a file in a TAR.
	tarMemory = 12 << 20
	// decoded is how many times the size of its block a decoded node has. A request reserves this for its
	// largest node, if that is too large for the cache.
	decoded = 8
	// listEntry is for an entry in the page of a folder.
	listEntry = 512
	// carBlock is what boxo remembers about each block of a CAR, so that it sends no block twice.
	carBlock = 256
	// maxShard is the size up to which a block may be a part of a sharded folder, of which boxo keeps
	// all parts for a CAR with dag-scope=entity.
	maxShard = 64 << 10
)

// Limits of the cache of nodes of one request.
const (
	maxCached      = 16
	maxCachedBytes = 64 << 10 // size of one node
)

// form is one of the formats of answers that boxo knows.
type form struct {
	name   string
	memory int64 // bytes that a request for this format reserves
}

// forms are the formats by the value of the parameter format, and types by their media type. Requests
// for others are rejected, because boxo counts requests by this value, which would fill the memory.
var (
	forms = map[string]form{
		"": {"content", fileMemory}, "raw": {"raw", fileMemory}, "car": {"car", fileMemory}, "tar": {"tar", tarMemory},
		"json": {"codec", fileMemory}, "cbor": {"codec", fileMemory}, "dag-json": {"codec", fileMemory}, "dag-cbor": {"codec", fileMemory},
	}
	types = map[string]string{
		"application/vnd.ipld.raw": "raw", "application/vnd.ipld.car": "car", "application/x-tar": "tar",
		"application/json": "json", "application/cbor": "cbor",
		"application/vnd.ipld.dag-json": "dag-json", "application/vnd.ipld.dag-cbor": "dag-cbor",
	}
	asked = []string{"application/vnd.ipld", "application/vnd.ipfs", "application/x-tar", "application/json", "application/cbor"}
)

// formOf returns the format that a request asks for, as boxo finds it: that of the parameter format if
// boxo knows it, else the first one in an Accept header, else "".
func formOf(r *http.Request) (form, error) {
	switch name := r.URL.Query().Get("format"); name {
	case "":
	case "ipns-record":
		return form{}, noNames()
	default:
		if f, ok := forms[name]; ok {
			return f, nil
		}
	}
	for _, line := range r.Header.Values("Accept") {
		for accept := range strings.SplitSeq(line, ",") {
			accept = strings.TrimSpace(accept)
			if !slices.ContainsFunc(asked, func(prefix string) bool { return strings.HasPrefix(accept, prefix) }) {
				continue
			}
			media, _, err := mime.ParseMediaType(accept)
			if name, ok := types[media]; ok && err == nil {
				return forms[name], nil
			}
			return form{}, web.BadRequest("this gateway does not serve the format %q", accept)
		}
	}
	return forms[""], nil
}

// noStore is the value of Cache-Control for errors.
const noStore = "no-store"

// request is the part of a request that boxo does not see. Its content is the only source of blocks.
type request struct {
	dag     content.DAG // nil until the request was checked
	refused error       // why the request is not served

	// mu guards the fields below. It is not held during calls of other code.
	mu     sync.Mutex
	held   *web.Held
	ended  bool  // the memory was given back
	node   int64 // size of the largest node that is not in the cache
	car    bool  // each block counts against the memory of the request
	entity bool  // shards count too
	failed error // the first error of a read; it becomes the status of an answer that has not begun
	headed bool  // the head of the answer was sent
	late   error // the first error of a read after that
	cached []block.Block
}

type requestKey struct{}

// requestOf returns the request of a context. It panics if there is none.
func requestOf(ctx context.Context) *request { return ctx.Value(requestKey{}).(*request) } //nolint:forcetypeassert // serve has set it

// answer calls h with the request and returns the error to answer with, or an error that cuts an answer
// which has begun but is not complete.
func (q *request) answer(w http.ResponseWriter, r *http.Request, h http.Handler) error {
	header := w.Header()
	header.Del("Cache-Control") // boxo sets it
	header.Del("Content-Security-Policy")
	out := &answer{ResponseWriter: w, of: q, headOnly: r.Method == http.MethodHead, body: web.NewSteady(w, web.StallTimeout)}
	h.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), requestKey{}, q)))
	if q.refused == nil && out.failing != 0 {
		q.refused = q.failure(out.failing, strings.TrimSpace(string(out.text)))
	}
	if q.refused != nil && out.status == 0 {
		for _, name := range []string{streamError, "Etag", "Content-Disposition", "X-Ipfs-Roots"} {
			header.Del(name)
		}
		return q.refused
	}
	if out.send(); out.status >= http.StatusBadRequest || out.headOnly {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch said := header.Get(streamError); {
	case out.err != nil:
		return fmt.Errorf("send content: %w", out.err)
	case q.late != nil && !isOfContent(q.late):
		return fmt.Errorf("read content: %w", q.late)
	case q.late != nil:
		return web.OfContent(fmt.Errorf("read content: %w", q.late))
	case said != "":
		return web.OfContent(fmt.Errorf("send content: %s", said))
	}
	return nil
}

// isOfContent reports whether an error of a read is no failure of this node: the content is not complete, was
// deleted meanwhile, or is on members that cannot be reached.
func isOfContent(err error) bool {
	return ipld.IsNotFound(err) || errors.As(err, new(*gateway.ErrorStatusCode)) || errors.Is(err, state.ErrInvalid) || errors.Is(err, state.ErrLimited)
}

// failure returns the error for an answer of boxo with the status 500 or above. The cause is the first error
// of a read. Without one the content itself cannot be served, which is no failure of the node.
func (q *request) failure(status int, text string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var coded *gateway.ErrorStatusCode
	switch {
	case errors.As(q.failed, &coded):
		return web.Errorf(coded.StatusCode, "GATEWAY_TIMEOUT", "%s", text)
	case ipld.IsNotFound(q.failed):
		return web.Errorf(http.StatusNotFound, "NOT_FOUND", "%s", text)
	case errors.Is(q.failed, state.ErrLimited):
		return q.failed
	case q.failed == nil, errors.Is(q.failed, state.ErrInvalid):
		return web.OfContent(web.Errorf(status, "FAILED", "%s", text))
	}
	return q.failed
}

// charge makes each block that is read from now on count against the memory of the request.
func (q *request) charge(scope gateway.DagScope) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.car, q.entity = true, scope == gateway.DagScopeEntity
}

// end gives the memory of the request back. Goroutines of boxo may still read for a moment.
func (q *request) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.held.Release()
}

// get returns a block of the content of the request.
func (q *request) get(ctx context.Context, c cid.Cid) (block.Block, error) {
	q.mu.Lock()
	for _, b := range q.cached {
		if b.Cid().Equals(c) {
			q.mu.Unlock()
			return b, nil
		}
	}
	q.mu.Unlock()
	if q.dag == nil {
		return nil, errors.New("the request was not checked")
	}
	ctx, cancel := context.WithTimeout(ctx, blockTimeout)
	defer cancel()
	data, err := q.dag.Block(ctx, c)
	if err != nil {
		return nil, q.fails(ctx, c, err)
	}
	b, err := block.NewBlockWithCid(data, c)
	if err != nil {
		return nil, err //nolint:wrapcheck // it is boxo's
	}
	return b, q.took(b)
}

// took puts a node in the cache, and reserves memory for a large node or for a block of a CAR.
func (q *request) took(b block.Block) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	size, cost := int64(len(b.RawData())), int64(0)
	isNode := b.Cid().Prefix().Codec != cid.Raw
	switch {
	case isNode && size <= maxCachedBytes:
		if len(q.cached) == maxCached {
			q.cached = q.cached[1:]
		}
		q.cached = append(q.cached, b)
	case isNode && size > q.node:
		cost = decoded * (size - q.node)
		q.node = size
	}
	if q.car {
		cost += carBlock
		if q.entity && isNode && size <= maxShard {
			cost += size
		}
	}
	return q.grow(cost)
}

// listed reserves memory for an entry of a page.
func (q *request) listed() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.grow(listEntry)
}

// grow reserves memory until the end of the request. The caller holds mu.
func (q *request) grow(bytes int64) error {
	if q.ended {
		return context.Canceled
	}
	err := q.held.Grow(bytes)
	if err != nil {
		q.remember(err)
	}
	return err
}

// fails remembers an error of a read, and returns it in a form in which boxo finds its status.
func (q *request) fails(ctx context.Context, c cid.Cid, err error) error {
	switch {
	case errors.Is(err, state.ErrNotFound):
		err = ipld.ErrNotFound{Cid: c}
	case errors.Is(err, state.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		err = gateway.NewErrorStatusCode(errors.New(detailOf(err)), http.StatusGatewayTimeout)
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return err // of a block that was read ahead and is not needed
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remember(err)
	return err
}

// remember notes an error of a read. The caller holds mu.
func (q *request) remember(err error) {
	if q.failed == nil {
		q.failed = err
	}
	if q.headed && q.late == nil {
		q.late = err
	}
}

// heads notes that the head of the answer is sent.
func (q *request) heads() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.headed = true
}

// Sizes of parts of an answer that are not sent at once, in bytes.
const (
	// maxEarly is the size of the beginning of a TAR or a CAR. If the content cannot be read before
	// there is more of it, the answer is an error.
	maxEarly = 32 << 10
	// maxText is the size of the text of an error.
	maxText = 4 << 10
)

// streamError is the header in which boxo tells an error of a stream, before it writes the error into the
// stream.
const streamError = "X-Stream-Error"

// errHeadOnly is the error of writes after the answer to HEAD.
var errHeadOnly = errors.New("the answer to HEAD has no body")

// answer is the ResponseWriter that boxo gets. Its writes fail if the client accepts no bytes for
// StallTimeout. It keeps back errors with the status 500 and above, and the beginning of a TAR or a CAR.
type answer struct {
	http.ResponseWriter

	of       *request
	body     io.Writer
	headOnly bool   // the method is HEAD
	status   int    // 0 until the head is sent
	early    []byte // beginning of the body, while the head is not sent
	failing  int    // status of an error that is kept back; 0: there is none
	text     []byte // its text
	err      error  // of a write
}

// WriteHeader implements http.ResponseWriter. It takes the headers of content from an error, as boxo sets
// them before it reads the content.
func (a *answer) WriteHeader(status int) {
	switch {
	case a.status != 0, a.failing != 0, status == http.StatusOK && a.isStream():
		return // or until there is enough of the stream
	case status >= http.StatusInternalServerError:
		a.failing = status
		return
	}
	a.head(status)
}

// head sends the head.
func (a *answer) head(status int) {
	h := a.Header()
	if status >= http.StatusBadRequest && strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
		h.Set("Cache-Control", noStore)
		h.Del("Etag")
		h.Del("Content-Disposition")
	}
	a.status = status
	a.of.heads()
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	said := a.Header().Get(streamError)
	if a.status == 0 && a.failing == 0 {
		switch {
		case said != "":
			a.failing, a.text = http.StatusUnprocessableEntity, []byte(said[:min(len(said), maxText)])
		case a.isStream() && len(a.early)+len(p) <= maxEarly:
			a.early = append(a.early, p...)
			return len(p), nil
		}
	}
	if a.failing != 0 {
		if said != "" {
			return len(p), nil // boxo's form of the same text
		}
		a.text = append(a.text, p[:min(len(p), maxText-len(a.text))]...)
		return len(p), nil
	}
	a.send()
	if a.headOnly {
		return 0, errHeadOnly // boxo would read a whole DAG for an answer without a body
	}
	return a.write(p)
}

// isStream reports whether the answer is a TAR or a CAR.
func (a *answer) isStream() bool {
	kind := a.Header().Get("Content-Type")
	return strings.HasPrefix(kind, "application/vnd.ipld.car") || kind == "application/x-tar"
}

// send sends the head and the beginning of the body, if they were kept back.
func (a *answer) send() {
	if a.status == 0 {
		a.head(http.StatusOK)
	}
	early := a.early
	if a.early = nil; len(early) > 0 && !a.headOnly {
		_, _ = a.write(early) // the error is in a.err
	}
}

func (a *answer) write(p []byte) (int, error) {
	if a.err != nil {
		return 0, a.err
	}
	n, err := a.body.Write(p)
	if err != nil {
		a.err = err
	}
	return n, err //nolint:wrapcheck // a writer
}
