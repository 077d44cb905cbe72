package node

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/holdfast-ipfs/holdfast/cluster/gossip"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Neighbours exchanges the load of accounts with the other nodes for admission control: a
// node alone cannot know that clients of another node wait for the same leader.
type Neighbours struct {
	self   state.NodeID
	heard  func() []gossip.Peer // of gossip
	hurry  func()
	leader func() (state.NodeID, bool)
	report atomic.Pointer[func() (requests map[state.AccountID]int, busy bool)]
}

// Neighbours returns the exchange of the load of accounts.
func (n *Node) Neighbours() *Neighbours { return n.neighbours }

// SetReport sets the function that reports the load of this node for every sample: the concurrent
// requests of each active account, and whether the processors were busy since the last call.
// report is not called concurrently.
func (e *Neighbours) SetReport(report func() (requests map[state.AccountID]int, busy bool)) {
	e.report.Store(&report)
}

// Hurry sends the next sample early, at most every half second. It does not block.
func (e *Neighbours) Hurry() { e.hurry() }

// Elsewhere returns the concurrent requests of accounts on all other live nodes, and
// whether the leader is one of them and busy. The values are as old as a sample, usually at
// most 2 s.
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

// mostReported is the number of accounts with the most concurrent requests in a sample that has no room for
// all: these are the ones that may be noisy on several nodes.
const mostReported = 2

// reported returns the accounts and the load for a sample.
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
