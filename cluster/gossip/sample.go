// Package gossip exchanges samples of load and liveness: each node publishes its own
// sample again and again. The transport signs the samples, so that no node can forge
// another's. Samples are hints; authoritative data is in the replicated state.
//
// Imports: consensus/state.
// Never:   libp2p, raft, storage, writing to the replicated state.
package gossip

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Bounds of a sample.
const (
	// MaxSample is the largest encoded sample, in bytes.
	MaxSample = 8 << 10
	// MaxAccounts is how many accounts a sample names at the most.
	MaxAccounts = 8
	// MaxRequests is the largest number of concurrent requests of an account. The listeners of a
	// node take fewer.
	MaxRequests = 1 << 20
)

// sampleVersion is the newest form of a sample that this release knows.
const sampleVersion = 1

// Errors of samples.
var (
	ErrSampleTooLarge = errors.New("sample too large")
	ErrBadSample      = errors.New("bad sample")
)

// Sample is what a node says of itself. A sample is newer than another of the
// same node by Start, then by Seq.
type Sample struct {
	Node  state.NodeID `json:"node"`
	Start state.Millis `json:"start"` // when the node's process began
	Seq   uint64       `json:"seq"`   // rising from 1 within one process
	// Time is what the node's clock said when it sent this; 0: it does not say.
	Time state.Millis `json:"time,omitempty"`

	UsedBytes    uint64   `json:"used"`
	FreeBytes    uint64   `json:"free"`
	Queue        int      `json:"queue"` // roots that the node has yet to fetch
	Held         uint64   `json:"held"`  // roots that the node holds
	Version      string   `json:"version"`
	Addrs        []string `json:"addrs"`         // public multiaddrs
	ClusterAddrs []string `json:"cluster_addrs"` // of the cluster host
	Draining     bool     `json:"draining"`      // wants no new content
	// Full: it has no room for new content. Tight: the disks of its Raft log or
	// state are so full that it should not lead.
	Full  bool `json:"full,omitempty"`
	Tight bool `json:"tight,omitempty"`
	// Refuses: the disk of its Raft log is full and has refused a write, so its vote does not
	// count for one. Ends: its process was told to end, and this is its last sample.
	Refuses bool `json:"refuses,omitempty"`
	Ends    bool `json:"ends,omitempty"`
	// Accounts are the accounts with the fewest concurrent requests among those that sent
	// requests to this node within the last seconds.
	Accounts []Account `json:"accounts,omitempty"`
	// Busy: since the last sample, threads of the node waited for a processor for more than
	// half of the time.
	Busy bool `json:"busy,omitempty"`
}

// Account is the load of one account on one node.
type Account struct {
	ID       state.AccountID `json:"id"`
	Requests int             `json:"requests"` // concurrent ones, the most within the last seconds
}

// wireSample is a sample's JSON form.
type wireSample struct {
	V int `json:"v"`
	Sample
}

// Encode returns the sample's bytes: one JSON object with its version "v",
// MaxSample bytes at the most, else ErrSampleTooLarge.
func (s *Sample) Encode() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(wireSample{V: sampleVersion, Sample: *s})
	if err != nil {
		return nil, fmt.Errorf("gossip: encode sample: %w", err)
	}
	if len(b) > MaxSample {
		return nil, fmt.Errorf("gossip: %w: %d bytes, at most %d", ErrSampleTooLarge, len(b), MaxSample)
	}
	return b, nil
}

// Decode reads a sample. Fields that it does not know are passed over, so that
// a newer release's nodes are not taken for dead while a cluster is upgraded;
// everything else that is out of bounds is ErrBadSample.
func Decode(b []byte) (Sample, error) {
	if len(b) > MaxSample {
		return Sample{}, fmt.Errorf("gossip: %w: %d bytes, at most %d", ErrSampleTooLarge, len(b), MaxSample)
	}
	if !utf8.Valid(b) {
		return Sample{}, fmt.Errorf("gossip: %w: no UTF-8", ErrBadSample)
	}
	var w wireSample
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&w); err != nil {
		return Sample{}, fmt.Errorf("gossip: %w: %w", ErrBadSample, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Sample{}, fmt.Errorf("gossip: %w: bytes after its end", ErrBadSample)
	}
	if w.V < 1 {
		return Sample{}, fmt.Errorf("gossip: %w: version %d", ErrBadSample, w.V)
	}
	if err := w.check(); err != nil {
		return Sample{}, err
	}
	return w.Sample, nil
}

func (s *Sample) check() error {
	switch {
	case s.Node == "" || len(s.Node) > state.MaxIDLen:
		return fmt.Errorf("gossip: %w: node id of %d bytes", ErrBadSample, len(s.Node))
	case s.Start <= 0 || s.Seq == 0:
		return fmt.Errorf("gossip: %w: no start or sequence", ErrBadSample)
	case s.Time < 0:
		return fmt.Errorf("gossip: %w: time of %d", ErrBadSample, s.Time)
	case s.Queue < 0:
		return fmt.Errorf("gossip: %w: queue of %d", ErrBadSample, s.Queue)
	case len(s.Version) > state.MaxIDLen:
		return fmt.Errorf("gossip: %w: version of %d bytes", ErrBadSample, len(s.Version))
	case len(s.Accounts) > MaxAccounts:
		return fmt.Errorf("gossip: %w: %d accounts", ErrBadSample, len(s.Accounts))
	}
	for _, a := range s.Accounts {
		if a.ID == "" || len(a.ID) > state.MaxIDLen || a.Requests < 1 || a.Requests > MaxRequests {
			return fmt.Errorf("gossip: %w: account id of %d bytes, %d requests", ErrBadSample, len(a.ID), a.Requests)
		}
	}
	for _, addrs := range [][]string{s.Addrs, s.ClusterAddrs} {
		if len(addrs) > state.MaxAddrs {
			return fmt.Errorf("gossip: %w: %d addresses", ErrBadSample, len(addrs))
		}
		for _, a := range addrs {
			if len(a) > state.MaxAddrLen {
				return fmt.Errorf("gossip: %w: address of %d bytes", ErrBadSample, len(a))
			}
		}
	}
	return nil
}

// newer tells whether s is later news of its node than o.
func (s *Sample) newer(o *Sample) bool {
	return s.Start > o.Start || s.Start == o.Start && s.Seq > o.Seq
}

// Valid tells whether data is a sample that from made of itself.
func Valid(from string, data []byte) bool {
	s, err := Decode(data)
	return err == nil && s.Node == state.NodeID(from)
}
