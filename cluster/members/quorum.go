package members

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Quorum says whether the cluster has the votes to decide anything, as this node sees it.
type Quorum struct {
	Votes   int          // members that vote
	Needed  int          // votes that a decision takes
	Here    int          // members that vote, that this node reaches, itself included, and that can write
	Missing []Missing    // the members that vote and are not Here, by name
	Leader  state.NodeID // empty when none is known
}

// Missing is a member that votes and that this node does not reach.
type Missing struct {
	ID     state.NodeID
	Name   string
	Heard  bool          // since this node runs
	Silent time.Duration // since it was last heard of
	Full   bool          // it is reached: the disk of its Raft log is full
}

// probeTimeout is how long Writable waits for a majority: an election of the default
// timings ends within it.
const probeTimeout = 2 * time.Second

// Quorum returns the picture of the votes. It asks nobody.
func (m *Members) Quorum() Quorum {
	var q Quorum
	if leader, known := m.opts.State.Leader(); known {
		q.Leader = leader
	}
	names := make(map[state.NodeID]string)
	for _, n := range m.Nodes() {
		names[n.ID] = n.Name
	}
	for id, role := range m.opts.State.Roles() {
		if role != "voter" {
			continue
		}
		q.Votes++
		load, heard := m.opts.Gossip.Load(id)
		here := id == m.opts.Self.ID || load.Connected && load.State != "down"
		if here && !load.Refuses {
			q.Here++
			continue
		}
		q.Missing = append(q.Missing, Missing{ID: id, Name: names[id], Heard: heard, Silent: load.Silent, Full: here})
	}
	slices.SortFunc(q.Missing, func(a, b Missing) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(string(a.ID), string(b.ID)))
	})
	if q.Votes > 0 {
		q.Needed = q.Votes/2 + 1
	}
	return q
}

// Writable is nil when a majority of the members that vote answers now, else it says why
// the cluster cannot write: state.ErrUnavailable, and at most probeTimeout later. A majority
// whose disks are full answers, and takes no write.
func (m *Members) Writable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	view, release, err := m.opts.State.View(ctx)
	if err != nil {
		return state.Errorf(state.CodeUnavailable, "%s", m.Quorum().Lacking())
	}
	defer release()
	if _, err = view.Cluster(); err != nil { // one that is only being founded has no state
		return err
	}
	if q := m.Quorum(); q.Here < q.Needed && slices.ContainsFunc(q.Missing, func(m Missing) bool { return m.Full }) {
		return state.Errorf(state.CodeUnavailable, "%s", q.Lacking())
	}
	return nil
}

// Complete tells whether nothing is missing for a decision, as far as this node sees.
func (q Quorum) Complete() bool { return q.Votes > 0 && q.Here >= q.Needed && q.Leader != "" }

// Lacking says in one line how many of how many votes are there and who is missing.
func (q Quorum) Lacking() string {
	if q.Votes == 0 {
		return "this node does not know the votes of the cluster yet"
	}
	text := fmt.Sprintf("%d of %s needed and %d %s here", q.Needed, votes(q.Votes), q.Here, isAre(q.Here))
	if len(q.Missing) > 0 {
		who := make([]string, len(q.Missing))
		for i, m := range q.Missing {
			who[i] = m.String()
		}
		text += "; missing: " + strings.Join(who, ", ")
	}
	switch {
	case q.Here < q.Needed:
	case q.Leader == "":
		text += "; no leader is known: the members elect one, or do not reach each other"
	default:
		text += "; the leader does not get the answers of a majority in time"
	}
	return text
}

// Warning says what is dangerous about the votes although the cluster writes; "" is nothing.
func (q Quorum) Warning() string {
	if q.Votes != 2 {
		return ""
	}
	return TwoVotes
}

// TwoVotes is the warning of a cluster with two members that vote.
const TwoVotes = "the cluster has two votes and needs both, so the stop of either node stops all writes: add a third node (holdfast token), or remove one (holdfast peers rm)"

// String is the member for people, with the end of its id and how long it has been silent.
func (m Missing) String() string {
	silent := "not heard of since this node started"
	switch {
	case m.Full:
		silent = "the disk of its Raft log is full"
	case m.Heard:
		silent = "last heard of " + ago(m.Silent) + " ago"
	}
	return fmt.Sprintf("%s (%s, %s)", cmp.Or(m.Name, "a node without a name"), m.ID.Short(), silent)
}

// ago is a time in the largest unit that fits.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + " min"
	}
	return strconv.Itoa(int(d/time.Hour)) + " h"
}

func votes(n int) string {
	if n == 1 {
		return "1 vote is"
	}
	return strconv.Itoa(n) + " votes are"
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
