package harness

import "slices"

// Status is the output of `holdfast status --json`.
type Status struct {
	ClusterID string    `json:"cluster_id"`
	Leader    string    `json:"leader"` // node id, or "" when none is known
	Index     uint64    `json:"index"`
	Node      NodeInfo  `json:"node"`
	Peers     []PeerRow `json:"peers"`
	Pins      PinCounts `json:"pins"`
}

// NodeInfo is the node that answers.
type NodeInfo struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Addrs        []string `json:"addrs"`         // public multiaddrs with /p2p/
	ClusterAddrs []string `json:"cluster_addrs"` // with /p2p/
	Pinning      string   `json:"pinning"`       // host:port or ""
	S3           string   `json:"s3"`
	Console      string   `json:"console"`
	Paid         string   `json:"paid"` // only there while it is on
}

// PeerRow is one member as the answering node sees it.
type PeerRow struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Role      string   `json:"role"`  // voter, nonvoter
	State     string   `json:"state"` // alive, suspect, down, draining
	Zone      string   `json:"zone"`  // by its settings
	Drain     *Drain   `json:"drain"` // nil: it is not being drained
	Addrs     []string `json:"addrs"`
	Version   string   `json:"version"`
	Pins      int64    `json:"pins"`
	UsedBytes int64    `json:"used_bytes"`
	FreeBytes int64    `json:"free_bytes"`
	Queue     int64    `json:"queue"`
	// Quarantine is there only for a member whose state differs.
	Quarantine string `json:"quarantine,omitempty"`
	Full       bool   `json:"full"` // only there when true
}

// Drain tells how far the drain of a member is. What is nil is not known.
type Drain struct {
	RootsLeft      uint64   `json:"roots_left"`
	BytesLeft      *uint64  `json:"bytes_left"`
	RootsPerMinute *float64 `json:"roots_per_minute"`
	BytesPerMinute *float64 `json:"bytes_per_minute"`
	SecondsLeft    *int64   `json:"seconds_left"`
}

// Member returns the row of a member, and whether there is one.
func (s Status) Member(id string) (PeerRow, bool) {
	i := slices.IndexFunc(s.Peers, func(p PeerRow) bool { return p.ID == id })
	if i < 0 {
		return PeerRow{}, false
	}
	return s.Peers[i], true
}

// PinCounts counts the cluster's pins by status.
type PinCounts struct {
	Queued          int64 `json:"queued"`
	Pinning         int64 `json:"pinning"`
	Pinned          int64 `json:"pinned"`
	Failed          int64 `json:"failed"`
	UnderReplicated int64 `json:"under_replicated"`
}

// Key is `holdfast key create --json`.
type Key struct {
	ID              string `json:"id"` // jti
	Token           string `json:"token"`
	AccessKeyID     string `json:"access_key_id"`
	SecretAccessKey string `json:"secret_access_key"`
	Scope           string `json:"scope"`
	Created         string `json:"created"`
}
