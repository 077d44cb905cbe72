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

// ticketLife is the validity of a join ticket from the console.
const ticketLife = 24 * time.Hour

// clusterData is the data of the page /cluster.
type clusterData struct {
	members.Status
	Quorum   members.Quorum
	Shortage members.Shortage
	Ages     bool // the table of missing copies has columns by age instead of by size
	Columns  []column
	Zones    []zone    // all members, by zone
	Ticket   string    // new join ticket; empty if none was requested
	Until    time.Time // expiry of the ticket
}

// zone is a zone with its members, such as a rack or a data centre.
type zone struct {
	Name  string // empty: the members have no zone in their settings, or have not reported it
	Peers []members.Peer
}

// zonesOf groups members by zone, ordered by name. Members without a zone are last.
func zonesOf(peers []members.Peer) (all []zone) {
	at := map[string]int{}
	for i := range peers {
		name := peers[i].Zone
		if _, known := at[name]; !known {
			at[name] = len(all)
			all = append(all, zone{Name: name})
		}
		z := &all[at[name]]
		z.Peers = append(z.Peers, peers[i])
	}
	slices.SortStableFunc(all, func(a, b zone) int {
		if a.Name == "" || b.Name == "" {
			return len(b.Name) - len(a.Name)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all
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
	ages := c.r.URL.Query().Get("by") == "age"
	made, _ := members.ParseTicket(ticket)
	return s.show(c, http.StatusOK, "cluster", "Cluster", "cluster", clusterData{
		Status: status, Quorum: s.Members.Quorum(), Shortage: short, Ages: ages, Columns: columns(ages), Zones: zonesOf(status.Peers), Ticket: ticket, Until: made.Expires.Time(),
	})
}

// invite serves POST /cluster/invite. It creates a join ticket for one node, and answers with the
// page /cluster and the ticket.
func (s *surface) invite(c *call) error {
	ticket, err := s.Members.CreateTicket(c.ctx, ticketLife, func(b []byte) { _, _ = rand.Read(b) }) // ends the process rather than fail
	if err != nil {
		return err
	}
	return s.showCluster(c, ticket)
}
