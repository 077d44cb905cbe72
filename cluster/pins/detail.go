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

// Detail is a pin with the copies of its content and the statuses that this node has seen.
type Detail struct {
	Record
	Copies []Copy // copies, ordered by node; nil if the content is allocated to no node, or the pin has failed
	Blocks uint64 // blocks of the content; 0 if not known yet
	// History has the statuses of the pin that this node has seen since a client first read the
	// detail here, oldest first. The replicated state has no times of statuses, so each node keeps
	// a history in memory; see traces.
	History []Step
}

// Copy is the copy of the content of a pin on one node.
type Copy struct {
	Node   state.NodeID
	Name   string // name of the node; empty if the node has none or has left the cluster
	Member bool
	Alive  bool
	Votes  bool        // the node may be a voter
	Phase  state.Phase // state.Held means that the node has checked every block and has all blocks on disk
	Reason string      // error of the last attempt; empty if no attempt failed
	// Progress is the progress of a node that does not have the content yet. Nil means that the
	// node did not answer.
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

// detail returns the record of a pin. If a node keeps the root of the pin, detail also returns the
// record of the root.
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

// Holders returns for each pin the names of the nodes that have its complete content, ordered by node. A node
// without a name has its id in the list. A failed pin has no holders. Holders reads the state that this node
// has applied, which may lag behind the cluster.
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

// holders returns the names of the nodes that have the content of a CID completely.
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
