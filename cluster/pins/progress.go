package pins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Keys of Record.Info that the Pinning Service API does not define. They exist while the
// content is being fetched. Each value is a number as text, from the node with the most
// progress.
const (
	InfoBytes    = "bytes_fetched"  // bytes of blocks that have arrived
	InfoBlocks   = "blocks_fetched" // blocks that have arrived
	InfoPosition = "queue_position" // position in the account's queue, on the node where the root is first
	InfoAttempts = "attempts"       // failed attempts, on the node with the most
)

// Progress is how far one node is with content that it does not hold yet.
type Progress struct {
	Node          state.NodeID
	Fetching      bool
	Bytes, Blocks uint64
	Position      int // position in the queue for a fetch, from 1; 0 means that it is not in the queue
	Attempts      int // number of attempts that have failed in a row
}

// Live asks the nodes that work on a root for their progress. The answers are not part of the
// state, and are out of date soon after they are read.
type Live interface {
	// Progress returns the answers of the nodes that answer within a short time.
	Progress(ctx context.Context, root state.RootKey, nodes []state.NodeID) []Progress
}

// enliven adds the progress of the nodes to a record.
func (p *Pins) enliven(ctx context.Context, r *Record, root *state.Root) []Progress {
	if p.live == nil || root == nil || r.Status != state.Queued && r.Status != state.Pinning {
		return nil
	}
	var nodes []state.NodeID
	for _, c := range root.Copies {
		if c.Phase == state.Assigned || c.Phase == state.Fetching {
			nodes = append(nodes, c.Node)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	said := p.live.Progress(ctx, root.Key, nodes)
	if len(said) == 0 {
		return nil
	}
	best := said[0]
	for _, s := range said[1:] {
		best.Fetching = best.Fetching || s.Fetching
		best.Blocks, best.Bytes = max(best.Blocks, s.Blocks), max(best.Bytes, s.Bytes)
		best.Attempts = max(best.Attempts, s.Attempts)
		if s.Position > 0 && (best.Position == 0 || s.Position < best.Position) {
			best.Position = s.Position
		}
	}
	// Callers share the map that a describer made, so change a copy.
	info := maps.Clone(r.Info)
	if info == nil {
		info = make(map[string]string, 4)
	}
	details := info[InfoDetails]
	if details == "" {
		details = r.Status.String()
	}
	info[InfoAttempts] = strconv.Itoa(best.Attempts)
	switch {
	case best.Fetching:
		info[InfoBytes], info[InfoBlocks] = strconv.FormatUint(best.Bytes, 10), strconv.FormatUint(best.Blocks, 10)
		details += fmt.Sprintf("; %s in %s so far", sizeText(best.Bytes), blocks(best.Blocks))
	case best.Position > 0:
		info[InfoPosition] = strconv.Itoa(best.Position)
		details += fmt.Sprintf("; place %d in the line", best.Position)
	}
	info[InfoDetails] = details
	r.Info = info
	return said
}

// sizeText writes a number of bytes for people: exactly below 1 KiB, and with one decimal at
// most in the largest binary unit above.
func sizeText(n uint64) string {
	const step = 1024 // 0.05 below it, rounding would write "1024" of the smaller unit
	switch {
	case n == 1:
		return "1 byte"
	case n < step:
		return strconv.FormatUint(n, 10) + " bytes"
	}
	value, unit, units := float64(n)/step, 0, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	for value >= step-0.05 && unit < len(units)-1 {
		value /= step
		unit++
	}
	return strings.TrimSuffix(strconv.FormatFloat(value, 'f', 1, 64), ".0") + " " + units[unit]
}

func blocks(n uint64) string {
	if n == 1 {
		return "1 block"
	}
	return strconv.FormatUint(n, 10) + " blocks"
}

// read describes a pin in a view. root is nil if no node holds its content.
func (p *Pins) read(view state.View, account state.AccountID, id state.RequestID) (Record, *state.Root, error) {
	if !validID(id) {
		return Record{}, nil, notFound()
	}
	pin, err := view.Pin(account, id)
	if errors.Is(err, state.ErrNotFound) {
		return Record{}, nil, notFound()
	}
	if err != nil {
		return Record{}, nil, fmt.Errorf("read pin %s: %w", id, err)
	}
	d := newDescriber(view, p.nodes, p.refused)
	r, err := d.record(pin)
	if err != nil {
		return Record{}, nil, err
	}
	c, err := d.content(pin.CID)
	if err != nil {
		return Record{}, nil, err
	}
	return r, c.root, nil
}
