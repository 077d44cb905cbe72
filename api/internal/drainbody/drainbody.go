// Package drainbody has the JSON object that describes the progress of the drain of a cluster
// member. All APIs that show members use it.
//
// Imports: cluster/members.
// Never:   routes.
package drainbody

import (
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/members"
)

// Drain is the progress of the drain of a member, as measured by the answering node. The rates
// are averages over the last minute. They are null until the node has measured for 10 s.
type Drain struct {
	RootsLeft      uint64   `json:"roots_left"`
	BytesLeft      *uint64  `json:"bytes_left"` // null: not known yet
	RootsPerMinute *float64 `json:"roots_per_minute"`
	BytesPerMinute *float64 `json:"bytes_per_minute"`
	SecondsLeft    *int64   `json:"seconds_left"` // estimate; null: unknown, such as while no content has moved yet
}

// Of returns d as a JSON object, or nil if d is nil because the member is not being drained.
func Of(d *members.Drain) *Drain {
	if d == nil {
		return nil
	}
	body := &Drain{RootsLeft: d.Roots, BytesLeft: d.Bytes}
	if d.Rate != nil {
		body.RootsPerMinute, body.BytesPerMinute = &d.Rate.RootsPerMinute, &d.Rate.BytesPerMinute
	}
	if left, known := d.Left(); known {
		seconds := int64(left / time.Second)
		body.SecondsLeft = &seconds
	}
	return body
}
