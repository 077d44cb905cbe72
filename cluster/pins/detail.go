package pins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-ipfs/holdfast/cluster/placement"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// Detail is a pin with the copies of its content and the history of its status.
type Detail struct {
	Record
	Copies []Copy // copies, ordered by node; nil if the content is allocated to no node, or the pin has failed
	Blocks uint64 // number of blocks of the content; 0 if not known yet
	// History is the statuses that this node has seen since a client first read the detail of the
	// pin on this node, oldest first. The replicated state stores no times of statuses, so each
	// node keeps a history in memory; see traces.
	History []Step
}

// Copy describes the copy of a pin's content on one node. Member and Alive are about the node.
type Copy struct {
	Node   state.NodeID
	Name   string // name of the node; empty if the node has none or has left the cluster
	Member bool
	Alive  bool
	Votes  bool        // the node may be a voter
	Phase  state.Phase // state.Held means that the node has checked every block and has all blocks on disk
	Reason string      // error of the last attempt; empty if no attempt failed
	// Progress is the progress of a node that does not have the complete content yet. It is nil
	// if the node has the content or did not answer.
	Progress *Progress
}

// Detail returns a pin of an account with its copies and its history. Errors: those of Get.
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

// detail returns the detail of a pin without its history. It also returns the record of the pin's
// root, or nil if the root is allocated to no node or the pin has failed.
func (p *Pins) detail(view state.View, account state.AccountID, id state.RequestID) (Detail, *state.Root, error) {
	r, root, err := p.read(view, account, id)
	if err != nil {
		return Detail{}, nil, err
	}
	d := Detail{Record: r}
	if root == nil || r.Status == state.Failed { // a failed pin keeps no content
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

// Holders returns for each record the names of the nodes that have the pin's complete content, in
// the order of their ids. For a node without a name it returns the id. A failed pin has no such
// nodes. Holders reads this node's copy of the state, which may be behind the cluster's.
func (p *Pins) Holders(rows []Record) ([][]string, error) {
	view, release := p.state.LocalView()
	defer release()
	all := make([][]string, len(rows))
	for i := range rows {
		if rows[i].Status == state.Failed {
			continue
		}
		var err error
		if all[i], err = holders(view, rows[i].CID); err != nil {
			return nil, fmt.Errorf("holders of pin %s: %w", rows[i].ID, err)
		}
	}
	return all, nil
}

// holders returns the names of the nodes that have the complete content of the CID text.
func holders(view state.View, text string) (names []string, err error) {
	parsed, err := cid.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("stored cid %q: %w", text, err)
	}
	root, err := view.Root(state.RootOf(parsed))
	if err != nil && !errors.Is(err, state.ErrNotFound) { // not found: no node holds it
		return nil, err
	}
	for _, c := range root.Copies {
		if c.Phase != state.Held {
			continue
		}
		n, err := view.Node(c.Node)
		if err != nil && !errors.Is(err, state.ErrNotFound) { // not found: it has left the cluster
			return nil, err
		}
		names = append(names, cmp.Or(n.Name, string(c.Node)))
	}
	return names, nil
}
