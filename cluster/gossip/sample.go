// Package gossip exchanges samples of load and liveness: each node publishes a sample about
// itself at intervals. The transport signs the samples, so that no node can forge those of
// another. Samples are only hints; authoritative data is in the replicated state.
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

// Limits of a sample.
const (
	// MaxSample is the maximum size of an encoded sample, in bytes.
	MaxSample = 8 << 10
	// MaxAccounts is the maximum number of accounts in a sample.
	MaxAccounts = 8
	// MaxRequests is the largest number of concurrent requests of an account that a sample may
	// contain. A node never accepts so many.
	MaxRequests = 1 << 20
)

// sampleVersion is the newest version of the encoding that this release knows.
const sampleVersion = 1

// Errors of Encode and Decode.
var (
	ErrSampleTooLarge = errors.New("sample too large")
	ErrBadSample      = errors.New("bad sample")
)

// Sample describes the load of a node at one moment. The newer of two samples of a node is the
// one with the later Start, and with equal Start the one with the higher Seq.
type Sample struct {
	Node  state.NodeID `json:"node"`
	Start state.Millis `json:"start"` // when the process of the node started
	Seq   uint64       `json:"seq"`   // 1, 2, 3 ... within one process
	// Time is the node's time when it sent the sample; 0 if the sample has none.
	Time state.Millis `json:"time,omitempty"`

	UsedBytes    uint64   `json:"used"`
	FreeBytes    uint64   `json:"free"`
	Queue        int      `json:"queue"` // roots that the node has not fetched yet
	Held         uint64   `json:"held"`  // roots that the node holds
	Version      string   `json:"version"`
	Zone         string   `json:"zone,omitempty"` // location of the node from its settings; "" if not set
	Addrs        []string `json:"addrs"`          // public multiaddrs
	ClusterAddrs []string `json:"cluster_addrs"`  // multiaddrs of the cluster host
	// Full is true if the node has no capacity for new content. Tight is true if the disk with
	// its Raft log or state is so full that the node should not lead.
	Full  bool `json:"full,omitempty"`
	Tight bool `json:"tight,omitempty"`
	// Refuses is true if the disk with the node's Raft log is full and has refused a write, so
	// that the node cannot acknowledge log entries. Ends is true in the last sample of a process
	// that was told to stop.
	Refuses bool `json:"refuses,omitempty"`
	Ends    bool `json:"ends,omitempty"`
	// Accounts are accounts that have sent requests to this node in the last seconds. If there
	// are more than MaxAccounts, they are those with the fewest concurrent requests, and the two
	// with the most.
	Accounts []Account `json:"accounts,omitempty"`
	// Busy is true if threads of the node waited for a processor for more than 50 % of the
	// time since the last sample.
	Busy bool `json:"busy,omitempty"`
}

// Account is the load of one account on one node.
type Account struct {
	ID       state.AccountID `json:"id"`
	Requests int             `json:"requests"` // largest number of concurrent requests in the last seconds
}

// wireSample is the JSON form of a sample.
type wireSample struct {
	V int `json:"v"`
	Sample
}

// Encode returns the sample as one JSON object, which includes the version "v". It returns
// ErrSampleTooLarge if that is larger than MaxSample, and ErrBadSample if a value is out of
// bounds.
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

// Decode parses a sample. It ignores unknown fields, so that during an upgrade members on an
// older release can read samples of a newer one. Errors: ErrSampleTooLarge above MaxSample bytes;
// ErrBadSample for any other fault.
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
	case len(s.Zone) > state.MaxIDLen:
		return fmt.Errorf("gossip: %w: zone of %d bytes", ErrBadSample, len(s.Zone))
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

// newer returns whether s is a later sample of the same node than o.
func (s *Sample) newer(o *Sample) bool {
	return s.Start > o.Start || s.Start == o.Start && s.Seq > o.Seq
}

// Valid returns whether data is a valid sample of the node from.
func Valid(from string, data []byte) bool {
	s, err := Decode(data)
	return err == nil && s.Node == state.NodeID(from)
}
