package transport

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/holdfast-ipfs/holdfast/internal/cache"
)

// sink is the library's end of a pipeline: it keeps what is sent.
type sink struct {
	raft.AppendPipeline
	mu   sync.Mutex
	sent []raft.AppendEntriesRequest
}

func (s *sink) AppendEntries(args *raft.AppendEntriesRequest, _ *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, *args)
	return nil, nil
}

func (s *sink) Close() error { return nil }

// take returns what was sent since the last call.
func (s *sink) take() []raft.AppendEntriesRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sent
	s.sent = nil
	return sent
}

func newSink(t *testing.T) (*sink, *pipeline, *Raft) {
	s := new(sink)
	transport := &Raft{pipelines: map[*pipeline]struct{}{}, hooks: Hooks{Leads: func(term uint64) bool { return term == 3 }}}
	p := newPipeline(s, transport, "follower")
	transport.pipelines[p] = struct{}{}
	t.Cleanup(func() { _ = p.Close() })
	return s, p, transport
}

// send sends the entries first to last, of term 3, as Raft does.
func send(t *testing.T, p *pipeline, first, last, committed uint64) {
	t.Helper()
	args := raft.AppendEntriesRequest{Term: 3, PrevLogEntry: first - 1, PrevLogTerm: 3, LeaderCommitIndex: committed}
	for i := first; i <= last; i++ {
		args.Entries = append(args.Entries, &raft.Log{Index: i, Term: 3})
	}
	if _, err := p.AppendEntries(&args, new(raft.AppendEntriesResponse)); err != nil {
		t.Fatal(err)
	}
}

// A pipeline leaves out a message that says nothing new, but sends one every quietFor.
func TestMessagesThatSayNothingNewAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, _ := newSink(t)
		for _, step := range []struct {
			name                   string
			first, last, committed uint64
			sent                   int
		}{
			{"the first", 5, 4, 4, 1},
			{"the same again", 5, 4, 4, 0},
			{"an entry", 5, 5, 4, 1},
			{"nothing since the entry", 6, 5, 4, 0},
			{"its commit", 6, 5, 5, 1},
			{"nothing since the commit", 6, 5, 5, 0},
			{"an older place: the follower lacks entries", 4, 3, 5, 1},
		} {
			send(t, p, step.first, step.last, step.committed)
			if got := len(s.take()); got != step.sent {
				t.Errorf("%s: %d sent, want %d", step.name, got, step.sent)
			}
		}
		// Two virtual seconds of nothing new, every 10 ms.
		send(t, p, 6, 5, 5)
		s.take()
		for range 200 {
			<-time.After(10 * time.Millisecond)
			send(t, p, 6, 5, 5)
		}
		if got := len(s.take()); got != int(2*time.Second/quietFor) {
			t.Errorf("%d sent in two seconds, want one every %s", got, quietFor)
		}
	})
}

// A follower that asks is told once of a commit that it does not know, and never of an index beyond the entries
// that were sent to it.
func TestFollowerThatAsksIsToldOfTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, transport := newSink(t)
		settled := func() []raft.AppendEntriesRequest {
			<-time.After(2 * notifyAfter)
			synctest.Wait()
			return s.take()
		}
		transport.NotifyCommit("follower", 9)
		if got := settled(); len(got) != 0 {
			t.Errorf("told before anything was sent: %+v", got)
		}
		send(t, p, 8, 9, 7)
		s.take()
		transport.NotifyCommit("somebody else", 9)
		transport.NotifyCommit("follower", 8)
		transport.NotifyCommit("follower", 9)
		got := settled()
		if len(got) != 1 || got[0].LeaderCommitIndex != 9 || got[0].PrevLogEntry != 9 || got[0].PrevLogTerm != 3 ||
			got[0].Term != 3 || len(got[0].Entries) != 0 {
			t.Errorf("told %+v, want one commit of 9", got)
		}
		transport.NotifyCommit("follower", 9)
		if got := settled(); len(got) != 0 {
			t.Errorf("told what it knows: %+v", got)
		}
		// An entry that says so comes before, and then nothing is to be told.
		send(t, p, 10, 10, 9)
		transport.NotifyCommit("follower", 10)
		send(t, p, 11, 11, 10)
		s.take()
		if got := settled(); len(got) != 0 {
			t.Errorf("told what an entry had said: %+v", got)
		}
		// Nothing is said of what was not sent: it may be another's there.
		transport.NotifyCommit("follower", 20)
		if got := settled(); len(got) != 1 || got[0].LeaderCommitIndex != 11 {
			t.Errorf("told %+v, want a commit of 11, the newest that was sent", got)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		transport.NotifyCommit("follower", 30)
		p.notifySoon(30, asked, notifyAfter)
		if got := settled(); len(got) != 0 {
			t.Errorf("told after the end: %+v", got)
		}
	})
}

// A node that has lost the lead tells of no commit, also when it leads again in a later term. The follower may
// have other entries under the same indexes than the ones that were committed.
func TestWhoLostTheLeadTellsOfNoCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, transport := newSink(t)
		var leads atomic.Bool
		leads.Store(true)
		transport.hooks.Leads = func(term uint64) bool { return leads.Load() && term == 3 }
		send(t, p, 8, 9, 7)
		s.take()
		transport.NotifyCommit("follower", 9)
		transport.NotifyCommitToAll(9, 10*notifyAfter)
		leads.Store(false) // before it is told
		<-time.After(20 * notifyAfter)
		synctest.Wait()
		if got := s.take(); len(got) != 0 {
			t.Errorf("told %+v", got)
		}
		// Elected again, it leads in another term than the stream's.
		leads.Store(true)
		transport.hooks.Leads = func(term uint64) bool { return term == 5 }
		transport.NotifyCommit("follower", 9)
		<-time.After(2 * notifyAfter)
		synctest.Wait()
		if got := s.take(); len(got) != 0 {
			t.Errorf("told %+v over a stream of an older term", got)
		}
	})
}

// Followers are told of the newest commit once, after the given time. A follower that asks is told sooner, and
// not again.
func TestFollowersAreToldOfACommitAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const after = 10 * time.Millisecond
		s, p, transport := newSink(t)
		send(t, p, 8, 9, 7)
		s.take()
		transport.NotifyCommitToAll(8, after)
		transport.NotifyCommitToAll(9, after)
		<-time.After(after - 1)
		synctest.Wait()
		if got := s.take(); len(got) != 0 {
			t.Errorf("told at once: %+v", got)
		}
		<-time.After(1)
		synctest.Wait()
		if got := s.take(); len(got) != 1 || got[0].LeaderCommitIndex != 9 {
			t.Errorf("told %+v, want one commit of 9", got)
		}
		// Who asks does not wait for the others.
		send(t, p, 10, 10, 9)
		s.take()
		transport.NotifyCommitToAll(10, after)
		transport.NotifyCommit("follower", 10)
		<-time.After(notifyAfter)
		synctest.Wait()
		if got := s.take(); len(got) != 1 || got[0].LeaderCommitIndex != 10 {
			t.Errorf("told %+v, want a commit of 10", got)
		}
		<-time.After(after)
		synctest.Wait()
		if got := s.take(); len(got) != 0 {
			t.Errorf("told again: %+v", got)
		}
	})
}

// After a doubt about a follower, its pipeline sends one message that says nothing new.
func TestAStreamInDoubtIsTried(t *testing.T) {
	s, p, transport := newSink(t)
	send(t, p, 5, 4, 4)
	s.take()
	transport.doubt("somebody else")
	send(t, p, 5, 4, 4)
	if got := s.take(); len(got) != 0 {
		t.Errorf("sent %+v, which says nothing new", got)
	}
	transport.doubt("follower")
	send(t, p, 5, 4, 4)
	send(t, p, 5, 4, 4)
	if got := s.take(); len(got) != 1 {
		t.Errorf("%d sent after a doubt, want 1", len(got))
	}
}

// Heartbeats to a member in one term are 75 ms apart. The first one does not wait, nor one to another member or
// in another term.
func TestHeartbeatsKeepTheirDistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 75 * time.Millisecond
		transport := &Raft{beats: cache.New[raft.ServerID, beat](maxBeats), every: every, streams: &streamLayer{ended: make(chan struct{})}}
		took := func(id raft.ServerID, term uint64) time.Duration {
			begin := time.Now()
			if !transport.await(id, term) {
				t.Error("the transport is said to be closed")
			}
			return time.Since(begin)
		}
		for _, step := range []struct {
			name  string
			after time.Duration
			id    raft.ServerID
			term  uint64
			want  time.Duration
		}{
			{"the first", 0, "a", 3, 0},
			{"to another member", 0, "b", 3, 0},
			{"soon after", 30 * time.Millisecond, "a", 3, 45 * time.Millisecond},
			{"at once", 0, "a", 3, every},
			{"late", time.Second, "a", 3, 0},
			{"of another term", 0, "a", 4, 0},
			{"soon after that", 70 * time.Millisecond, "a", 4, 5 * time.Millisecond},
		} {
			<-time.After(step.after)
			if got := took(step.id, step.term); got != step.want {
				t.Errorf("%s: waited %s, want %s", step.name, got, step.want)
			}
		}
		closed := make(chan bool)
		go func() { closed <- !transport.await("a", 4) }()
		synctest.Wait()
		close(transport.streams.ended)
		if !<-closed {
			t.Error("a heartbeat outlives the transport")
		}
	})
}

// A message has at most maxAppendBytes of entries, or one larger entry, and tells of no commit after its last
// entry.
func TestEntriesThatMakeAMessageLongWaitForTheNext(t *testing.T) {
	for _, tc := range []struct {
		sizes           []int
		want            int
		committed, told uint64
	}{
		{[]int{100, 100}, 2, 3, 3},
		{[]int{maxAppendBytes, 1}, 1, 11, 10},
		{[]int{2 * maxAppendBytes}, 1, 10, 10},
		{[]int{2 * maxAppendBytes, 1}, 1, 5, 5},
		{[]int{maxAppendBytes / 2, maxAppendBytes / 2, 1}, 2, 20, 11},
		{nil, 0, 7, 7},
	} {
		s, p, _ := newSink(t)
		args := raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 9, PrevLogTerm: 3, LeaderCommitIndex: tc.committed}
		for i, size := range tc.sizes {
			args.Entries = append(args.Entries, &raft.Log{Index: uint64(10 + i), Term: 3, Data: make([]byte, size)})
		}
		if _, err := p.AppendEntries(&args, new(raft.AppendEntriesResponse)); err != nil {
			t.Fatal(err)
		}
		sent := s.take()[0]
		// Raft goes by what it handed over.
		if len(sent.Entries) != tc.want || len(args.Entries) != tc.want || sent.LeaderCommitIndex != tc.told {
			t.Errorf("entries of %v bytes: %d go out, Raft counts %d, committed is %d; want %d and %d",
				tc.sizes, len(sent.Entries), len(args.Entries), sent.LeaderCommitIndex, tc.want, tc.told)
		}
	}
}
