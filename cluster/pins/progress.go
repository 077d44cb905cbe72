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

// Keys of Record.Info that the Pinning Service API does not define. They are present while nodes
// fetch the content. Each value is a decimal number, from the node with the most progress.
const (
	InfoBytes    = "bytes_fetched"  // bytes of the blocks that have arrived
	InfoBlocks   = "blocks_fetched" // number of blocks that have arrived
	InfoPosition = "queue_position" // smallest position of the root in the account's queue on any node
	InfoAttempts = "attempts"       // largest number of failed attempts on any node
)

// Progress is the progress of one node with content of which it has no complete copy yet.
type Progress struct {
	Node          state.NodeID
	Fetching      bool
	Bytes, Blocks uint64
	Position      int // position in the queue for a fetch, from 1; 0 means that it is not in the queue
	Attempts      int // number of attempts that have failed in a row
}

// Live asks nodes for their progress with a root. The progress is not part of the state, and is
// outdated soon.
type Live interface {
	// Progress returns the progress of those nodes that answer within a short time.
	Progress(ctx context.Context, root state.RootKey, nodes []state.NodeID) []Progress
}

// enliven asks the nodes without a complete copy for their progress. It adds the best values to
// r.Info and returns all answers. It does nothing if the pin is neither queued nor pinning.
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

// sizeText returns a number of bytes as text for people: the exact number below 1 KiB, and
// otherwise with at most one decimal in the largest fitting binary unit.
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

// read returns the record of a pin in view, and the record of its root, or nil if the state has
// no such root.
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
