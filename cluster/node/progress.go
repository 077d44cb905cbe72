package node

import (
	"context"
	"encoding/json"
	"net"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/cache"
)

// progressProtocol is the protocol that asks a member about its progress in fetching a root. The
// request is the root's CID and a line feed. The answer is one JSON object, or empty if the
// member does no work for the root. A member that does not know the protocol refuses the stream;
// its progress is unknown then.
const progressProtocol = "/holdfast/progress/1"

// Limits for questions about progress.
const (
	// progressTimeout is how long the answer to GET /pins/{id} waits for the members.
	progressTimeout = 250 * time.Millisecond
	// progressFresh is how long the answers about a root are reused.
	progressFresh = 200 * time.Millisecond
	// maxProgressKept is the largest number of roots whose answers are cached for reuse.
	maxProgressKept = 1024
	// maxAsking is the largest number of roots about which this node asks at the same time. The
	// progress of further roots is reported as unknown. maxAnswering is the largest number of
	// requests that this node answers at the same time.
	maxAsking    = 32
	maxAnswering = 64
	// maxProgress is the largest length of a request and of an answer in bytes.
	maxProgress = 512
)

// wireProgress is the JSON form of an answer.
type wireProgress struct {
	Fetching bool   `json:"fetching"`
	Bytes    uint64 `json:"bytes"`
	Blocks   uint64 `json:"blocks"`
	Position int    `json:"position"`
	Attempts int    `json:"attempts"`
}

// progress asks members about their progress in fetching roots, and answers such requests of
// other members. It implements pins.Live.
type progress struct {
	self state.NodeID
	dial func(ctx context.Context, id, proto string) (net.Conn, error)
	down func(state.NodeID) bool
	look func(context.Context, state.RootKey) (tracker.Seen, bool)
	now  func() time.Time

	// mu guards the fields below. It is not held during calls of other code.
	mu     sync.Mutex
	asking int
	kept   *cache.Cache[state.RootKey, said]
}

// said is the cached answers of members about one root, and the time at which they arrived.
type said struct {
	at  time.Time
	all []pins.Progress
}

// Progress implements pins.Live.
func (p *progress) Progress(ctx context.Context, root state.RootKey, nodes []state.NodeID) []pins.Progress {
	now := p.now()
	p.mu.Lock()
	if s, ok := p.kept.Get(root); ok && now.Sub(s.at).Abs() < progressFresh {
		p.mu.Unlock()
		return s.all
	}
	if p.asking >= maxAsking {
		p.mu.Unlock()
		return nil
	}
	p.asking++
	p.mu.Unlock()
	all := p.ask(ctx, root, nodes)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking--
	p.kept.Put(root, said{p.now(), all}) // a silent member took its time
	return all
}

func (p *progress) ask(ctx context.Context, root state.RootKey, nodes []state.NodeID) (all []pins.Progress) {
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	var mu sync.Mutex // of all
	var asked sync.WaitGroup
	for _, id := range nodes {
		if id != p.self && p.down(id) {
			continue
		}
		asked.Go(func() {
			var seen tracker.Seen
			var ok bool
			if id == p.self {
				seen, ok = p.look(ctx, root)
			} else {
				seen, ok = p.question(ctx, id, root)
			}
			if ok {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, pins.Progress{
					Node: id, Fetching: seen.Fetching, Bytes: seen.Bytes, Blocks: seen.Blocks, Position: seen.Position, Attempts: seen.Attempts,
				})
			}
		})
	}
	asked.Wait()
	return all
}

// question asks one member about its progress with a root. It returns false if the member does
// not answer, does no work for the root, or answers something invalid.
func (p *progress) question(ctx context.Context, id state.NodeID, root state.RootKey) (tracker.Seen, bool) {
	data, err := question(ctx, p.dial, id, progressProtocol, root.Cid(), maxProgress)
	var w wireProgress
	if err != nil || json.Unmarshal(data, &w) != nil || w.Position < 0 || w.Position > tracker.MaxPosition || w.Attempts < 0 {
		return tracker.Seen{}, false
	}
	return tracker.Seen(w), true
}

// serve answers requests of members until ctx ends.
func (p *progress) serve(ctx context.Context, l net.Listener) error {
	return serveStreams(ctx, l, maxAnswering, p.answer)
}

// answer answers one request. It closes the connection without an answer if the request is
// malformed.
func (p *progress) answer(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c, err := readRoot(conn)
	if err != nil {
		return
	}
	if seen, ok := p.look(ctx, state.RootOf(c)); ok {
		_ = json.NewEncoder(conn).Encode(wireProgress(seen)) // it asks again if it cares
	}
}
