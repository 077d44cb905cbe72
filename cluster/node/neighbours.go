package node

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/holdfast-ipfs/holdfast/cluster/gossip"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Neighbours exchanges the load of accounts with the other nodes by gossip. Admission control
// needs it, because a node does not see that clients of another node load the same leader.
type Neighbours struct {
	self   state.NodeID
	heard  func() []gossip.Peer // returns the members and their newest samples
	hurry  func()
	leader func() (state.NodeID, bool)
	report atomic.Pointer[func() (requests map[state.AccountID]int, busy bool)]
}

// Neighbours returns the component that exchanges the load of accounts with other nodes.
func (n *Node) Neighbours() *Neighbours { return n.neighbours }

// SetReport sets the function that reports the load of this node. Gossip calls it for each
// sample. report returns the number of concurrent requests of each active account, and whether
// the processors were busy since the last call. It is never called concurrently.
func (e *Neighbours) SetReport(report func() (requests map[state.AccountID]int, busy bool)) {
	e.report.Store(&report)
}

// Hurry makes gossip send the next sample sooner, at most one every half second. It does not
// block.
func (e *Neighbours) Hurry() { e.hurry() }

// Elsewhere returns the number of concurrent requests of each account on all other live nodes
// together. busy is true if another node leads and its processors are busy. The values come from
// the newest samples, which are usually at most 2 s old.
func (e *Neighbours) Elsewhere() (requests map[state.AccountID]int, busy bool) {
	leader, _ := e.leader()
	requests = map[state.AccountID]int{}
	for _, p := range e.heard() {
		if p.Node == e.self || p.State != gossip.Alive || p.Sample.Ends {
			continue
		}
		busy = busy || p.Node == leader && p.Sample.Busy
		for _, a := range p.Sample.Accounts {
			requests[a.ID] += a.Requests
		}
	}
	return requests, busy
}

// mostReported is how many accounts with the most concurrent requests a sample contains if there
// is no room for all accounts. The other places go to the accounts with the fewest requests.
// Accounts with many requests may load several nodes at once, so they must be among those
// reported.
const mostReported = 2

// reported returns the active accounts for this node's next sample, and whether its processors
// are busy. Both are zero before SetReport.
func (e *Neighbours) reported() (accounts []gossip.Account, busy bool) {
	report := e.report.Load()
	if report == nil {
		return nil, false
	}
	requests, busy := (*report)()
	for id, n := range requests {
		accounts = append(accounts, gossip.Account{ID: id, Requests: min(n, gossip.MaxRequests)})
	}
	slices.SortFunc(accounts, func(a, b gossip.Account) int {
		return cmp.Or(cmp.Compare(a.Requests, b.Requests), cmp.Compare(a.ID, b.ID))
	})
	if n := len(accounts); n > gossip.MaxAccounts {
		accounts = slices.Delete(accounts, gossip.MaxAccounts-mostReported, n-mostReported)
	}
	return accounts, busy
}
