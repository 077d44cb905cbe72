package console

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/members"
)

// ticketLife is the time for which a ticket of the console is valid.
const ticketLife = 24 * time.Hour

// clusterData has the data of the page of the cluster.
type clusterData struct {
	members.Status
	Quorum   members.Quorum
	Shortage members.Shortage
	Classes  []sizeClass
	Ticket   string // a new ticket; empty if none was requested
}

// clusterPage serves GET /cluster: the cluster as this node sees it, also without a majority.
func (s *surface) clusterPage(c *call) error { return s.showCluster(c, "") }

func (s *surface) showCluster(c *call, ticket string) error {
	status, err := s.Members.Status(c.ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(status.Peers, func(a, b members.Peer) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(string(a.ID), string(b.ID)))
	})
	short, err := s.Members.Shortage(c.ctx)
	if err != nil {
		return err
	}
	return s.show(c, http.StatusOK, "cluster", "Cluster", "cluster", clusterData{status, s.Members.Quorum(), short, sizeClasses(), ticket})
}

// invite serves POST /cluster/invite. It makes a ticket with which one node can join.
func (s *surface) invite(c *call) error {
	ticket, err := s.Members.CreateTicket(c.ctx, ticketLife, func(b []byte) { _, _ = rand.Read(b) }) // ends the process rather than fail
	if err != nil {
		return err
	}
	return s.showCluster(c, ticket)
}
