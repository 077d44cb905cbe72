package webapi

import (
	"fmt"

	"github.com/holdfast-ipfs/holdfast/api/internal/drainbody"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// membersBody is the cluster as this node sees it.
type membersBody struct {
	ClusterID       string            `json:"cluster_id"`
	Leader          state.NodeID      `json:"leader"` // "" if no leader is known
	Quorum          quorumBody        `json:"quorum"`
	Pins            map[string]uint64 `json:"pins"`             // number of pins by status
	UnderReplicated uint64            `json:"under_replicated"` // pinned roots with too few copies on live members
	Results         []memberBody      `json:"results"`
}

// quorumBody states whether the cluster has enough votes to commit changes.
type quorumBody struct {
	Votes    int  `json:"votes"`    // number of voters
	Needed   int  `json:"needed"`   // votes that a commit needs
	Here     int  `json:"here"`     // voters that this node reaches and that can write, itself included
	Complete bool `json:"complete"` // Here is at least Needed
}

// memberBody is a member of the cluster.
type memberBody struct {
	ID         state.NodeID     `json:"id"`
	Name       string           `json:"name"`
	Role       string           `json:"role"`
	State      string           `json:"state"`
	Version    string           `json:"version"`
	Pins       uint64           `json:"pins"`
	UsedBytes  uint64           `json:"used_bytes"`
	FreeBytes  uint64           `json:"free_bytes"`
	Queue      int              `json:"queue"`
	Full       bool             `json:"full"`
	Zone       string           `json:"zone,omitempty"`
	Drain      *drainbody.Drain `json:"drain,omitempty"`
	Quarantine string           `json:"quarantine,omitempty"`
}

func bodyOfMember(p *members.Peer) memberBody {
	return memberBody{
		p.ID, p.Name, p.Role, p.State, p.Load.Version, p.Pins, p.UsedBytes, p.FreeBytes, p.Queue, p.Full, p.Zone, drainbody.Of(p.Drain), p.Quarantine,
	}
}

// listMembers answers GET /members, also while the cluster has no majority.
func (s *surface) listMembers(c *call) error {
	status, err := s.Members.Status(c.ctx)
	if err != nil {
		return fmt.Errorf("list members: %w", err)
	}
	q := s.Members.Quorum()
	body := membersBody{
		ClusterID: status.ClusterID, Leader: status.Leader, Quorum: quorumBody{q.Votes, q.Needed, q.Here, q.Complete()},
		Pins: map[string]uint64{}, UnderReplicated: status.UnderReplicated, Results: []memberBody{},
	}
	for of, n := range status.Pins {
		body.Pins[of.String()] = n
	}
	for i := range status.Peers {
		body.Results = append(body.Results, bodyOfMember(&status.Peers[i]))
	}
	return c.ok(body)
}
