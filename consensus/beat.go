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

// Limits of beats. A beat is a small message by which the leader shows that it is alive; it
// replaces Raft's heartbeat for the detection of failures (ADR 47).
const (
	// beatTimeout is how long the leader waits for the answer to a beat.
	beatTimeout = mostPatience
	// maxBeatsInFlight is the largest number of unanswered beats to one member.
	maxBeatsInFlight = 16
	// olderBeat is the interval of Raft heartbeats to a member whose release does not know beats.
	// Such a member elects another leader after 300 ms without a heartbeat.
	olderBeat = 75 * time.Millisecond
	// almostStalled is how long a write to the log must hang before a leader announces that it
	// can no longer lead. After stalledWrite the leader stops.
	almostStalled = stalledWrite - 500*time.Millisecond
	// askOlderAgain is the interval at which the leader tries a beat with a member that did not
	// know beats, in case it runs a newer release now.
	askOlderAgain = 10 * time.Second
)

// Sizes of a beat and its answer. Later releases may append fields.
const (
	beatBytes       = 8 + 4 + 1 // term, patience in ms (see patience.go), and 1 if the leader can no longer lead
	beatAnswerBytes = 4 + 1     // the longest gap between two beats in ms, and 1 if the member follows this leader
)

// beatSender sends the leader's beats during one term.
type beatSender struct {
	node *Node
	term uint64
	work *sync.WaitGroup

	// mu guards the fields below. It is not held during network or disk access.
	mu      sync.Mutex
	members map[raft.ServerID]*beaten
}

// beaten is what the leader knows about a member from the answers to its beats. Times are on the
// detector's clock.
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

// measure evaluates the members' answers. lost is true if no majority has answered within the
// patience. roundTrip is the round trip to the farthest voter, and gap is the longest gap between
// beats that any responding member has seen. The two durations determine the next patience.
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

// begin decides what to send to a member now. beat means to send a beat; older means that the
// member's release does not know beats, so it needs a Raft heartbeat. Both are false if too many
// beats to the member are unanswered.
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

// send sends a beat if beat is true. If the member does not follow this leader yet, or does not
// know beats, send also sends a Raft heartbeat.
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

// ask sends a beat and records the answer. follows is false if the member does not know beats.
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

// answered records the time of a member's answer. While mu is held, it also calls the function also
// with the record of the member.
func (s *beatSender) answered(id raft.ServerID, also func(m *beaten, now time.Duration)) {
	_, now := s.node.detector.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[id]
	m.answered = now
	also(m, now)
}

// heartbeat sends one Raft heartbeat and waits for the answer or the end of ctx. If ctx ends
// first, a goroutine keeps waiting for the answer, because Raft's transport cannot cancel a
// request.
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

// answerBeat handles a beat from another member, and returns the kind and the body of the answer.
func (n *Node) answerBeat(from string, body []byte) (uint8, []byte) {
	if len(body) < beatBytes {
		return refusal(fmt.Errorf("%w: a beat of %d bytes", errRetry, len(body)))
	}
	patience := time.Duration(binary.BigEndian.Uint32(body[8:])) * time.Millisecond
	follows, gap := n.detector.beat(state.NodeID(from), binary.BigEndian.Uint64(body), patience, body[12] == 1)
	answer := binary.BigEndian.AppendUint32(nil, uint32(min(gap.Milliseconds(), math.MaxUint32)))
	return answerDone, append(answer, flag(follows))
}
