package node

import (
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Nobody outside may learn from a want what is private.
func TestWithoutASessionMembersAloneAreAsked(t *testing.T) {
	f := &fetcher{}
	session := &given{}
	job := tracker.Job{Members: []state.NodeID{"b", "c"}, Origins: []string{"/ip4/198.51.100.9/tcp/4001"}, Sharing: 1}
	if all := f.sources(job, session); len(all) != 4 { // its origins are asked for the root first
		t.Errorf("of a pin: %v", all)
	}
	all := f.sources(job, nil)
	if len(all) != 2 {
		t.Fatalf("of private content: %v", all)
	}
	for i, s := range all {
		if m, ok := s.(member); !ok || m.id != string(job.Members[i]) {
			t.Errorf("source %d: %v", i, s)
		}
	}
}
