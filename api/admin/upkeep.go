package admin

import (
	"context"
	"fmt"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/upkeep"
)

// Upkeep collects garbage on this node and checks it.
type Upkeep interface {
	// Collect frees at once what the node would free later.
	Collect(ctx context.Context) (upkeep.Collection, error)
	// Check computes the indexes and counters of the state and the references of the block store,
	// and returns what differs from what is stored.
	Check(ctx context.Context) (upkeep.Report, error)
}

// Collected is the result of a collection of garbage.
type Collected struct {
	Blocks    uint64 `json:"blocks"`     // number of freed blocks
	Bytes     uint64 `json:"bytes"`      // their total size
	Files     uint64 `json:"files"`      // number of removed segment files
	FileBytes uint64 `json:"file_bytes"` // their total size
	LiveBytes uint64 `json:"live_bytes"` // size of all blocks that the node stores now
	DiskBytes uint64 `json:"disk_bytes"` // size of all segment files now
	Kept      []Kept `json:"kept"`       // what cannot be freed yet
}

// Kept is content that cannot be freed yet, with the reason.
type Kept struct {
	Reason string `json:"reason"` // "uploads", "imports", "leases", "readers", "last_copies" or "waiting"
	Count  uint64 `json:"count"`
	Bytes  uint64 `json:"bytes"`
}

func collectedOf(c *upkeep.Collection) Collected {
	out := Collected{
		Blocks: c.Blocks, Bytes: c.Bytes, Files: c.Files, FileBytes: c.FileBytes, LiveBytes: c.LiveBytes, DiskBytes: c.DiskBytes, Kept: []Kept{},
	}
	for _, k := range []struct {
		reason string
		held   upkeep.Held
	}{
		{"uploads", c.Uploads}, {"imports", c.Imports}, {"leases", c.Leased},
		{"readers", c.Read}, {"last_copies", c.Last}, {"waiting", c.Waiting},
	} {
		if k.held.Count > 0 {
			out.Kept = append(out.Kept, Kept{k.reason, k.held.Count, k.held.Bytes})
		}
	}
	return out
}

// collect answers POST /gc after the garbage is collected. Only the client limits the time.
func (p *operator) collect(w http.ResponseWriter, r *http.Request) error {
	c, err := p.opts.Upkeep.Collect(r.Context())
	if err != nil {
		return fmt.Errorf("collect garbage: %w", err)
	}
	return web.JSON(w, http.StatusOK, collectedOf(&c))
}

// Checked is the result of a check of a node.
type Checked struct {
	Index       uint64       `json:"index"`  // log index at which the state was checked
	Rows        uint64       `json:"rows"`   // number of rows of the state
	Copies      uint64       `json:"copies"` // number of roots that were compared with the block store
	Blocks      uint64       `json:"blocks"` // number of rows of the block store's index
	Differences []Difference `json:"differences"`
	More        uint64       `json:"more"`     // number of differences that are not listed
	AtLeast     bool         `json:"at_least"` // there may be more of these
}

// Difference is one difference between what is stored and what was computed.
type Difference struct {
	Table    string `json:"table"`
	Key      string `json:"key"`
	Stored   string `json:"stored"`
	Computed string `json:"computed"`
}

// check answers POST /fsck after the node is checked. Only the client limits the time.
func (p *operator) check(w http.ResponseWriter, r *http.Request) error {
	found, err := p.opts.Upkeep.Check(r.Context())
	if err != nil {
		return fmt.Errorf("check the node: %w", err)
	}
	out := Checked{
		Index: found.Index, Rows: found.Rows, Copies: found.Copies, Blocks: found.Blocks,
		Differences: make([]Difference, len(found.Differences)), More: found.More, AtLeast: found.AtLeast,
	}
	for i, d := range found.Differences {
		out.Differences[i] = Difference(d)
	}
	return web.JSON(w, http.StatusOK, out)
}
