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

// Quorum describes whether enough voters are reachable from this node to commit entries.
type Quorum struct {
	Votes   int          // number of voters
	Needed  int          // votes that a commit needs
	Here    int          // number of voters, including this node, that this node reaches and that can write
	Missing []Missing    // the other voters, by name
	Leader  state.NodeID // empty when none is known
}

// Missing is a voter that this node cannot reach or that cannot write.
type Missing struct {
	ID     state.NodeID
	Name   string
	Heard  bool          // whether it sent a sample since this node started
	Silent time.Duration // time since its last sample
	Full   bool          // it is reachable, but the disk of its Raft log is full
}

// probeTimeout is how long Writable waits for a majority. An election with the default
// timings ends within it.
const probeTimeout = 2 * time.Second

// Quorum returns the Quorum according to gossip and open connections. It sends no request.
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

// Writable returns nil if a majority of the voters answers now and can write. Otherwise it
// returns, within probeTimeout, state.ErrUnavailable with the reason why the cluster cannot
// write. A majority that includes voters with full disks may answer reads and still accept no
// write.
func (m *Members) Writable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	view, release, err := m.opts.State.View(ctx)
	if err != nil {
		return state.Errorf(state.CodeUnavailable, "%s", m.Quorum().Lacking())
	}
	defer release()
	if _, err = view.Cluster(); err != nil { // while the cluster is being created there is no state
		return err
	}
	if q := m.Quorum(); q.Here < q.Needed && slices.ContainsFunc(q.Missing, func(m Missing) bool { return m.Full }) {
		return state.Errorf(state.CodeUnavailable, "%s", q.Lacking())
	}
	return nil
}

// Complete returns whether a majority of voters is reachable and a leader is known.
func (q Quorum) Complete() bool { return q.Votes > 0 && q.Here >= q.Needed && q.Leader != "" }

// Lacking returns one line of text with the number of votes needed, the number reached, and the
// missing voters.
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

// Warning returns a text about a risk for a cluster that can write at the moment, or "".
func (q Quorum) Warning() string {
	if q.Votes != 2 {
		return ""
	}
	return TwoVotes
}

// TwoVotes is the warning for a cluster with two voters.
const TwoVotes = "the cluster has two votes and needs both, so the stop of either node stops all writes: add a third node (holdfast token), or remove one (holdfast peers rm)"

// String returns a text with the member's name, the end of its id, and the time since its last
// sample.
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

// ago returns d in whole seconds, minutes or hours, in the largest unit that gives at least 1.
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
