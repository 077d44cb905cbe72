package harness

import "slices"

// Status is the output of `holdfast status --json`.
type Status struct {
	ClusterID string    `json:"cluster_id"`
	Leader    string    `json:"leader"` // id of the leader; "" if the node knows none
	Index     uint64    `json:"index"`
	Node      NodeInfo  `json:"node"`
	Peers     []PeerRow `json:"peers"`
	Pins      PinCounts `json:"pins"`
}

// NodeInfo describes the node that answers.
type NodeInfo struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Addrs        []string `json:"addrs"`         // public multiaddrs with /p2p/
	ClusterAddrs []string `json:"cluster_addrs"` // with /p2p/
	Pinning      string   `json:"pinning"`       // host:port of the pinning API; "" if it is off
	S3           string   `json:"s3"`
	Console      string   `json:"console"`
	Paid         string   `json:"paid"`    // host:port of the paid gateway; absent if it is off
	Gateway      string   `json:"gateway"` // host:port of the IPFS gateway; absent if it is off
}

// PeerRow describes one member as the answering node sees it.
type PeerRow struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Role    string   `json:"role"`  // voter or nonvoter
	State   string   `json:"state"` // alive, suspect, down or draining
	Zone    string   `json:"zone"`  // the setting node.zone of the member
	Drain   *Drain   `json:"drain"` // nil if the member is not being drained
	Addrs   []string `json:"addrs"`
	Version string   `json:"version"`
	Pins    int64    `json:"pins"`
	// PinsPartial is true while the member's pins are still being counted.
	PinsPartial bool  `json:"pins_partial,omitempty"`
	UsedBytes   int64 `json:"used_bytes"`
	FreeBytes   int64 `json:"free_bytes"`
	Queue       int64 `json:"queue"`
	// Quarantine is set only for a member whose state differs from that of the majority.
	Quarantine string `json:"quarantine,omitempty"`
	Full       bool   `json:"full"` // a disk of the member is full; absent if not
}

// Drain describes the progress of a drain. A nil field means that the value is not known.
type Drain struct {
	RootsLeft      uint64   `json:"roots_left"`
	BytesLeft      *uint64  `json:"bytes_left"`
	RootsPerMinute *float64 `json:"roots_per_minute"`
	BytesPerMinute *float64 `json:"bytes_per_minute"`
	SecondsLeft    *int64   `json:"seconds_left"`
}

// Member returns the row of the member with this id. The second result is false if there is none.
func (s Status) Member(id string) (PeerRow, bool) {
	i := slices.IndexFunc(s.Peers, func(p PeerRow) bool { return p.ID == id })
	if i < 0 {
		return PeerRow{}, false
	}
	return s.Peers[i], true
}

// PinCounts has the number of pins in the cluster by status.
type PinCounts struct {
	Queued          int64 `json:"queued"`
	Pinning         int64 `json:"pinning"`
	Pinned          int64 `json:"pinned"`
	Failed          int64 `json:"failed"`
	UnderReplicated int64 `json:"under_replicated"`
}

// Key is the output of `holdfast key create --json`.
type Key struct {
	ID              string `json:"id"` // jti
	Token           string `json:"token"`
	AccessKeyID     string `json:"access_key_id"`
	SecretAccessKey string `json:"secret_access_key"`
	Scope           string `json:"scope"`
	Created         string `json:"created"`
}
