package consensus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Bounds of beats.
const (
	// beatTimeout is how long the leader waits for the answer to a beat.
	beatTimeout = mostPatience
	// maxBeatsInFlight is the largest number of unanswered beats to one member.
	maxBeatsInFlight = 16
	// olderBeat is the interval of Raft heartbeats to a member that does not know beats. Such a
	// member elects another leader after 300 ms of silence.
	olderBeat = 75 * time.Millisecond
	// almostStalled is how long a write to the log must hang before a leader announces that it
	// can no longer lead. After stalledWrite the leader stops.
	almostStalled = stalledWrite - 500*time.Millisecond
	// askOlderAgain is how long the leader assumes that such a member does not know beats.
	askOlderAgain = 10 * time.Second
)

// Sizes of a beat and its answer. Later releases may append fields.
const (
	beatBytes       = 8 + 4 + 1 // term, patience in ms, and 1 if the leader can no longer lead
	beatAnswerBytes = 4 + 1     // the longest gap in ms, and 1 if the member follows
)

// beatSender sends the beats of the leader, in one term.
type beatSender struct {
	node *Node
	term uint64
	work *sync.WaitGroup

	// mu guards the fields below. It is never held during input or output.
	mu      sync.Mutex
	members map[raft.ServerID]*beaten
}

// beaten is what a leader knows about a member. Times are those of the detector's clock.
type beaten struct {
	inFlight  int
	answered  time.Duration
	older     bool // the member does not know beats
	askAgain  time.Duration
	gap       time.Duration // the longest gap that the member has seen
	roundTrip extreme
}

// sendBeats sends beats while this node leads, until ctx ends.
func (n *Node) sendBeats(ctx context.Context) error {
	if n.detector == nil {
		return nil
	}
	var work sync.WaitGroup
	defer work.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var sender *beatSender
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		every := detectorStep
		if !n.IsLeader() {
			sender = nil
		} else {
			if term := n.raft.CurrentTerm(); sender == nil || sender.term != term {
				sender = &beatSender{node: n, term: term, work: &work, members: map[raft.ServerID]*beaten{}}
			}
			every = sender.round(ctx)
		}
		timer.Reset(every)
	}
}

// round sends one beat to every other member, and returns when the next beat is due.
func (s *beatSender) round(ctx context.Context) (every time.Duration) {
	n := s.node
	_, now := n.detector.current()
	servers := n.servers()
	lost, roundTrip, gap := s.measure(servers, now)
	lost = lost || n.disk.writing() > almostStalled
	patience, risen := n.detector.agreePatience(roundTrip, gap)
	if risen {
		n.log.InfoContext(ctx, "leader raises the time that it may be silent before an election", "patience", patience, "round_trip", roundTrip, "longest_gap", gap)
	}
	body := binary.BigEndian.AppendUint64(make([]byte, 0, beatBytes), s.term)
	body = binary.BigEndian.AppendUint32(body, uint32(patience.Milliseconds()))
	body = append(body, flag(lost))
	every = patience / beatsPerPatience
	for _, server := range servers {
		if server.ID == raftID(n.opts.ID) {
			continue
		}
		beat, older := s.begin(server.ID, now)
		if older {
			every = min(every, olderBeat)
		}
		if beat || older {
			s.work.Go(func() { s.send(ctx, server.ID, body, beat) })
		}
	}
	return every
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// measure returns whether the leader has not heard from a majority within its patience, and
// the two values that determine the patience: the round trip to the farthest voter, and the
// longest gap that a responding member has seen.
func (s *beatSender) measure(servers []raft.Server, now time.Duration) (lost bool, roundTrip, gap time.Duration) {
	patience, _ := s.node.detector.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	voters, heard := 0, 0
	for _, server := range servers {
		m := s.members[server.ID]
		if server.Suffrage == raft.Voter {
			voters++
			if server.ID == raftID(s.node.opts.ID) || m == nil || now-m.answered < patience {
				heard++
			}
		}
		if m != nil && now-m.answered < patienceWindow {
			gap = max(gap, m.gap)
			if server.Suffrage == raft.Voter {
				roundTrip = max(roundTrip, m.roundTrip.value(now))
			}
		}
	}
	return heard <= voters/2, roundTrip, gap
}

// begin returns whether to send a beat to a member now, and whether the member may run a
// release that needs Raft heartbeats instead.
func (s *beatSender) begin(id raft.ServerID, now time.Duration) (beat, older bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[id]
	if m == nil {
		m = &beaten{answered: now, roundTrip: extreme{least: true}} // it is given time to answer
		s.members[id] = m
	}
	if m.inFlight >= maxBeatsInFlight {
		return false, false
	}
	beat = !m.older || now >= m.askAgain
	if beat && m.older {
		m.askAgain = now + askOlderAgain
	}
	m.inFlight++
	return beat, m.older
}

// send sends a beat. To a member that does not follow yet, or does not know beats, it also
// sends a Raft heartbeat.
func (s *beatSender) send(ctx context.Context, id raft.ServerID, body []byte, beat bool) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	follows, err := false, error(nil)
	if beat {
		follows, err = s.ask(ctx, id, body)
	}
	if err == nil && !follows {
		if err = s.heartbeat(ctx, id); err == nil {
			s.answered(id, func(*beaten, time.Duration) {})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[id].inFlight--
}

// ask sends a beat. A member that does not know beats counts as not following.
func (s *beatSender) ask(ctx context.Context, id raft.ServerID, body []byte) (follows bool, err error) {
	began := time.Now()
	answer, err := s.node.forwards.call(ctx, state.NodeID(id), askBeat, body)
	took := time.Since(began)
	switch {
	case errors.Is(err, state.ErrInvalid):
		s.answered(id, func(m *beaten, _ time.Duration) { m.older = true })
		return false, nil
	case err != nil:
		return false, err
	case len(answer) < beatAnswerBytes:
		return false, fmt.Errorf("an answer of %d bytes to a beat", len(answer))
	}
	s.answered(id, func(m *beaten, now time.Duration) {
		m.older = false
		m.gap = time.Duration(binary.BigEndian.Uint32(answer)) * time.Millisecond
		m.roundTrip.note(now, max(took, 1))
	})
	return answer[4] == 1, nil
}

// answered records that a member has answered.
func (s *beatSender) answered(id raft.ServerID, also func(m *beaten, now time.Duration)) {
	_, now := s.node.detector.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[id]
	m.answered = now
	also(m, now)
}

// heartbeat sends a Raft heartbeat, as Raft itself does from time to time. It returns only
// after the answer, because Raft gives no way to cancel it.
func (s *beatSender) heartbeat(ctx context.Context, id raft.ServerID) error {
	if !s.node.beats.leads(s.term) {
		return errLeadsNot
	}
	answer := make(chan error, 1)
	s.node.waits.Go(func() {
		var resp raft.AppendEntriesResponse
		answer <- s.node.transport.Heartbeat(id, &raft.AppendEntriesRequest{
			RPCHeader: s.node.rpcHeader(), Term: s.term,
		}, &resp)
	})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answerBeat answers a beat of another member.
func (n *Node) answerBeat(from string, body []byte) (uint8, []byte) {
	if len(body) < beatBytes {
		return refusal(fmt.Errorf("%w: a beat of %d bytes", errRetry, len(body)))
	}
	patience := time.Duration(binary.BigEndian.Uint32(body[8:])) * time.Millisecond
	follows, gap := n.detector.beat(state.NodeID(from), binary.BigEndian.Uint64(body), patience, body[12] == 1)
	answer := binary.BigEndian.AppendUint32(nil, uint32(min(gap.Milliseconds(), math.MaxUint32)))
	return answerDone, append(answer, flag(follows))
}
