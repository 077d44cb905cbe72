package node

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/gossip"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// The requests of an account on all live other nodes are added, and only the leader's processors count as busy.
func TestLoadOfOtherNodesIsAdded(t *testing.T) {
	sample := func(busy bool, accounts ...gossip.Account) gossip.Sample {
		return gossip.Sample{Accounts: accounts, Busy: busy}
	}
	ends := sample(true, gossip.Account{ID: "ended", Requests: 1})
	ends.Ends = true
	heard := []gossip.Peer{
		{Node: "self", Sample: sample(true, gossip.Account{ID: "one", Requests: 100})},
		{Node: "a", Sample: sample(true, gossip.Account{ID: "one", Requests: 3}, gossip.Account{ID: "two", Requests: 5})},
		{Node: "b", Sample: sample(false, gossip.Account{ID: "one", Requests: 4})},
		{Node: "suspect", State: gossip.Suspect, Sample: sample(true, gossip.Account{ID: "old", Requests: 1})},
		{Node: "ends", Sample: ends},
	}
	leader := state.NodeID("a")
	e := &Neighbours{self: "self", heard: func() []gossip.Peer { return heard }, leader: func() (state.NodeID, bool) { return leader, leader != "" }}
	for id, want := range map[state.NodeID]bool{"a": true, "b": false, "self": false, "suspect": false, "ends": false, "": false} {
		leader = id
		requests, busy := e.Elsewhere()
		if busy != want || !maps.Equal(requests, map[state.AccountID]int{"one": 7, "two": 5}) {
			t.Errorf("leader %q: %v, %t", id, requests, busy)
		}
	}
}

// A sample has the accounts with the fewest and those with the most requests, as many as fit, and none before there
// is an API.
func TestTheMostModestAndTheNoisiestAccountsAreReported(t *testing.T) {
	e := &Neighbours{}
	if accounts, busy := e.reported(); len(accounts) > 0 || busy {
		t.Errorf("%v, %t without an API", accounts, busy)
	}
	load := map[state.AccountID]int{"most": gossip.MaxRequests + 1}
	e.SetReport(func() (map[state.AccountID]int, bool) { return load, true })
	accounts, busy := e.reported()
	if want := []gossip.Account{{ID: "most", Requests: gossip.MaxRequests}}; !busy || !slices.Equal(accounts, want) {
		t.Errorf("%v, %t, want %v", accounts, busy, want)
	}
	var want []gossip.Account
	for i := range 2 * gossip.MaxAccounts {
		a := gossip.Account{ID: state.AccountID(fmt.Sprintf("%02d", i)), Requests: 1 + i/2}
		load[a.ID] = a.Requests
		want = append(want, a)
	}
	accounts, _ = e.reported()
	want = append(want[:gossip.MaxAccounts-mostReported], want[len(want)-1], gossip.Account{ID: "most", Requests: gossip.MaxRequests})
	if !slices.Equal(accounts, want) {
		t.Errorf("%v, want %v", accounts, want)
	}
	s := gossip.Sample{Node: "n", Start: 1, Seq: 1, Accounts: accounts}
	if _, err := s.Encode(); err != nil {
		t.Error(err)
	}
}
