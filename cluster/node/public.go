package node

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	mh "github.com/multiformats/go-multihash"
)

// OpenDAG implements content.Store.
func (f *files) OpenDAG(holders []state.NodeID) content.DAG {
	return publicDAG{f.buffers, wholeDAG{f.reader(holders)}}
}

// OpenVisible implements content.Store. It reads the block c from this node, or else finds a member that
// shows it.
func (f *files) OpenVisible(ctx context.Context, c cid.Cid) (content.DAG, error) {
	v := &visibleBlocks{here: f.blocks, find: f.visible, read: f.peer.ReadBlock}
	inHere, err := v.visibleHere(ctx, c)
	if err == nil && !inHere {
		v.giver, err = f.visible.Find(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	return publicDAG{f.buffers, v}, nil
}

// publicDAG implements content.DAG. Errors of from have codes of the state already.
type publicDAG struct {
	buffers *dag.Buffers
	from    dag.Getter
}

// Block implements content.DAG.
func (d publicDAG) Block(ctx context.Context, c cid.Cid) ([]byte, error) {
	b, err := d.from.Get(ctx, c)
	if err != nil {
		return nil, err
	}
	return b.RawData(), nil
}

// File implements content.DAG.
func (d publicDAG) File(ctx context.Context, c cid.Cid) (io.ReadSeekCloser, uint64, error) {
	f, err := d.buffers.Open(ctx, d.from, c)
	switch {
	case err == nil:
		return f, f.Size(), nil
	case errors.Is(err, dag.ErrIsDirectory), errors.Is(err, dag.ErrNotFile), errors.Is(err, dag.ErrUnsupportedCodec),
		errors.Is(err, dag.ErrInvalidBlock), errors.Is(err, dag.ErrTooLarge):
		return nil, 0, state.Errorf(state.CodeInvalid, "%v", err)
	}
	return nil, 0, err
}

// wholeDAG reads a DAG of which some member has a complete copy. So a block that is missing is not
// "not found": a member cannot be reached.
type wholeDAG struct{ *reader }

// Get implements dag.Getter.
func (w wholeDAG) Get(ctx context.Context, c cid.Cid) (block.Block, error) {
	b, err := w.reader.Get(ctx, c)
	return b, unreachable(c, err)
}

// Read implements dag.Lender.
func (w wholeDAG) Read(ctx context.Context, c cid.Cid, lend func(int) []byte) ([]byte, error) {
	data, err := w.reader.Read(ctx, c, lend)
	return data, unreachable(c, err)
}

func unreachable(c cid.Cid, err error) error {
	if ipld.IsNotFound(err) {
		return state.Errorf(state.CodeUnavailable, "the members that have %s cannot be reached", c)
	}
	return err
}

// visibleBlocks reads blocks that are public and complete on the node that has them, and no others. It
// does not store the blocks of members.
type visibleBlocks struct {
	here interface {
		dag.Getter
		Visible(ctx context.Context, c cid.Cid) (bool, error)
	}
	find *visibility
	// read requests a block from a member and verifies its hash.
	read func(ctx context.Context, member string, c cid.Cid, lend func(int) []byte) ([]byte, error)

	// mu guards giver. It is not held during calls of other code.
	mu    sync.Mutex
	giver state.NodeID // the member that showed the last block; it is asked first; empty if none has
}

// visibleHere returns whether this node shows a block. The content of an identity CID is a part of the
// CID, and so of the request.
func (v *visibleBlocks) visibleHere(ctx context.Context, c cid.Cid) (bool, error) {
	if c.Prefix().MhType == mh.IDENTITY {
		return true, nil
	}
	return v.here.Visible(ctx, c)
}

// Get implements dag.Getter. Errors: state.ErrNotFound if no member shows the block,
// state.ErrUnavailable if members do not answer.
func (v *visibleBlocks) Get(ctx context.Context, c cid.Cid) (block.Block, error) {
	inHere, err := v.visibleHere(ctx, c)
	if err != nil {
		return nil, err
	}
	if inHere {
		if b, err := v.here.Get(ctx, c); err == nil {
			return b, nil // else it is damaged here
		}
	}
	v.mu.Lock()
	giver := v.giver
	v.mu.Unlock()
	if giver != "" {
		if shows, err := v.find.Asks(ctx, giver, c); err == nil && shows {
			if b, err := v.from(ctx, giver, c); err == nil {
				return b, nil
			}
		}
	}
	if giver, err = v.find.Find(ctx, c); err != nil {
		return nil, err
	}
	b, err := v.from(ctx, giver, c)
	if err != nil {
		return nil, state.Errorf(state.CodeUnavailable, "the members that have %s cannot be reached", c)
	}
	v.mu.Lock()
	v.giver = giver
	v.mu.Unlock()
	return b, nil
}

// from reads a block from a member.
func (v *visibleBlocks) from(ctx context.Context, member state.NodeID, c cid.Cid) (block.Block, error) {
	data, err := v.read(ctx, string(member), c, func(bytes int) []byte { return make([]byte, bytes) })
	if err != nil {
		return nil, err
	}
	return block.NewBlockWithCid(data, c)
}
