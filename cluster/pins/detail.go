package pins

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-ipfs/holdfast/cluster/placement"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Detail is a pin with the copies of its content and with the statuses that this node has seen.
type Detail struct {
	Record
	Copies []Copy // by node; nil: the content is allocated to no node, or the pin has failed
	Blocks uint64 // of the content; 0: not known yet
	// History are the statuses that this node has seen of the pin, the oldest first, since its
	// detail was first read here; see traces. The state has no times of them.
	History []Step
}

// Copy describes the copy of a pin's content on one node.
type Copy struct {
	Node   state.NodeID
	Name   string // empty: it has none, or is no member any more
	Member bool
	Alive  bool
	Votes  bool        // it may be a voter
	Phase  state.Phase // state.Held: the node has checked every block and has them on disk
	Reason string      // why the last attempt failed; empty: none did
	// Progress is the progress of a node that does not have the content yet; nil: the node did
	// not answer.
	Progress *Progress
}

// Detail returns a pin of an account with its copies and its history. Errors are those of Get.
func (p *Pins) Detail(ctx context.Context, account state.AccountID, id state.RequestID) (Detail, error) {
	view, release, err := p.view(ctx)
	if err != nil {
		return Detail{}, fmt.Errorf("read pin: %w", err)
	}
	d, root, err := p.detail(view, account, id)
	release()
	if err != nil {
		return Detail{}, err
	}
	d.History = p.look(&d.Record)
	for _, said := range p.enliven(ctx, &d.Record, root) {
		if i := slices.IndexFunc(d.Copies, func(c Copy) bool { return c.Node == said.Node }); i >= 0 {
			d.Copies[i].Progress = &said
		}
	}
	return d, nil
}

// detail returns the record of a pin, and the record of its root if any node keeps the root.
func (p *Pins) detail(view state.View, account state.AccountID, id state.RequestID) (Detail, *state.Root, error) {
	r, root, err := p.read(view, account, id)
	if err != nil {
		return Detail{}, nil, err
	}
	d := Detail{Record: r}
	if root == nil || r.Status == state.Failed { // a failed pin holds on to nothing
		return d, nil, nil
	}
	d.Blocks = root.Blocks
	known := p.nodes.Candidates()
	for _, c := range root.Copies {
		row := Copy{
			Node: c.Node, Phase: c.Phase, Reason: state.OwnReason(c.Reason, r.Origins),
			Alive: slices.ContainsFunc(known, func(n placement.Node) bool { return n.ID == c.Node && n.Alive }),
		}
		n, err := view.Node(c.Node)
		switch {
		case err == nil:
			row.Name, row.Member, row.Votes = n.Name, true, n.Votes
		case !errors.Is(err, state.ErrNotFound):
			return Detail{}, nil, fmt.Errorf("read member %s: %w", c.Node, err)
		}
		d.Copies = append(d.Copies, row)
	}
	return d, root, nil
}
