package apitest

import (
	"bytes"
	"context"
	"io"
	"sync"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// Content is a content store in memory. It implements objects.Content and objects.Files.
type Content struct {
	t testing.TB

	// mu guards the fields below.
	mu   sync.Mutex
	of   map[cid.Cid][]byte
	torn bool // every read fails
}

// Tear makes every later read of content fail.
func (c *Content) Tear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.torn = true
}

// Store implements objects.Content.
func (c *Content) Store(_ context.Context, body io.Reader, place ingest.Placement) (objects.Kept, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	return c.keep(data, place), nil
}

// Join implements objects.Content.
func (c *Content) Join(_ context.Context, parts []ingest.File, place ingest.Placement) (objects.Kept, error) {
	var all []byte
	c.mu.Lock()
	for _, p := range parts {
		all = append(all, c.of[p.Root]...)
	}
	c.mu.Unlock()
	return c.keep(all, place), nil
}

func (c *Content) keep(data []byte, place ingest.Placement) objects.Kept {
	sum, err := multihash.Sum(data, multihash.SHA2_256, -1)
	if err != nil {
		c.t.Fatal(err)
	}
	root := cid.NewCidV1(cid.Raw, sum)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[root] = data
	return keptContent{state.RootOf(root), uint64(len(data)), place}
}

// Open implements objects.Files.
func (c *Content) Open(_ context.Context, root cid.Cid, _ []state.NodeID) (io.ReadSeekCloser, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, ok := c.of[root]
	if !ok {
		return nil, 0, state.ErrNotFound
	}
	f := struct {
		io.Reader
		io.Seeker
		io.Closer
	}{Closer: io.NopCloser(nil)}
	r := bytes.NewReader(data)
	if f.Reader, f.Seeker = r, r; c.torn {
		f.Reader = torn{}
	}
	return f, uint64(len(data)), nil
}

// torn is a reader that always fails.
type torn struct{}

func (torn) Read([]byte) (int, error) { return 0, state.ErrUnavailable }

// keptContent implements objects.Kept.
type keptContent struct {
	root  state.RootKey
	size  uint64
	place ingest.Placement
}

func (k keptContent) Content() state.Content {
	c := state.Content{Root: k.root, Bytes: k.size, Blocks: 1, Nodes: k.place.Nodes}
	for _, n := range k.place.Nodes[:k.place.Copies] {
		c.Held = append(c.Held, state.Holding{Node: n})
	}
	return c
}
func (k keptContent) Size() uint64              { return k.size }
func (keptContent) Renew(context.Context) error { return nil }
func (keptContent) Done(bool)                   {}
func (keptContent) Unknown()                    {}
