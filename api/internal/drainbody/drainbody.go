// Package drainbody has the JSON object that tells how far the drain of a member is, for each surface that
// shows members.
//
// Imports: cluster/members.
// Never:   routes.
package drainbody

import (
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/members"
)

// Drain tells how far the drain of a member is, as the answering node has seen it. Rates are those of the
// last minute, and null while the node has watched for less than 10 s.
type Drain struct {
	RootsLeft      uint64   `json:"roots_left"`
	BytesLeft      *uint64  `json:"bytes_left"` // null: not known yet
	RootsPerMinute *float64 `json:"roots_per_minute"`
	BytesPerMinute *float64 `json:"bytes_per_minute"`
	SecondsLeft    *int64   `json:"seconds_left"` // null: not known, also because nothing has left the member
}

// Of returns the body for d, or nil if the member is not being drained.
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
