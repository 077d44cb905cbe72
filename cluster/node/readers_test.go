package node

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/nettest"
	"github.com/ipfs/go-cid"
)

// shelf is a member from which files are read.
type shelf struct {
	*nettest.Pipes
	reading atomic.Int32 // files that stay
	asked   atomic.Int32 // dials
	deaf    bool         // does not know the protocol
	serving context.Context
	end     context.CancelFunc
	ended   chan error
}

func newShelf(t *testing.T, root cid.Cid) *shelf {
	s := &shelf{Pipes: nettest.NewPipes(), ended: make(chan error, 1)}
	s.serving, s.end = context.WithCancel(t.Context())
	f := &files{reading: func(k state.RootKey) func() {
		if k != state.RootOf(root) {
			t.Errorf("%v is read, want %v", k.Cid(), root)
		}
		s.reading.Add(1)
		return func() { s.reading.Add(-1) }
	}}
	go func() { s.ended <- f.serveReaders(s.serving, s) }()
	return s
}

func (s *shelf) dialProto(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, id, proto string) (net.Conn, error) {
		s.asked.Add(1)
		if id != "n2" || proto != readProtocol {
			t.Errorf("%s is asked for %s", id, proto)
		}
		if s.deaf {
			return nil, io.ErrUnexpectedEOF
		}
		return s.Dial(ctx)
	}
}

func (s *shelf) want(t *testing.T, reading, asked int32) {
	t.Helper()
	synctest.Wait()
	if s.reading.Load() != reading || s.asked.Load() != asked {
		t.Errorf("%d files stay and there were %d questions, want %d and %d", s.reading.Load(), s.asked.Load(), reading, asked)
	}
}

func (s *shelf) stop(t *testing.T) {
	t.Helper()
	s.end()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// A member that gives blocks of a file is notified once that the file is read, until the reader closes it.
func TestWhoGivesBlocksKnowsThatTheFileIsRead(t *testing.T) {
	root := cid.MustParse(progressCID)
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t, root)
		defer s.stop(t)
		teller := newTeller(root, s.dialProto(t), time.Now)
		from := &reader{order: []state.NodeID{"n2"}}
		from.gave("n2") // the root's own block, before the file is known
		from.tellsFrom(teller.tell)
		s.want(t, 1, 1)
		for range 100 {
			from.gave("n2")
		}
		<-time.After(time.Hour)
		s.want(t, 1, 1)
		teller.close()
		s.want(t, 0, 1)
		from.gave("n2") // a read that was under way
		s.want(t, 0, 1)
	})
}

// A member that has ended is notified again, at most once in each tellAgain.
func TestWhoHasEndedIsToldAgain(t *testing.T) {
	root := cid.MustParse(progressCID)
	synctest.Test(t, func(t *testing.T) {
		first := newShelf(t, root)
		teller := newTeller(root, first.dialProto(t), time.Now)
		defer teller.close()
		teller.tell("n2")
		first.want(t, 1, 1)
		first.stop(t)
		first.want(t, 0, 1)
		second := newShelf(t, root)
		defer second.stop(t)
		second.deaf = true
		teller.dial = second.dialProto(t)
		for range 4 * int(tellAgain/time.Second) { // blocks come all the time
			teller.tell("n2")
			<-time.After(time.Second)
		}
		second.want(t, 0, 3) // one after each tellAgain
	})
}

// A node closes the stream of a reader that names no root within tellTimeout.
func TestReadersThatSayNothingAreLetGo(t *testing.T) {
	root := cid.MustParse(progressCID)
	for _, said := range []string{"", "no CID\n", strings.Repeat("b", 2*maxProgress)} {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf(t, root)
			defer s.stop(t)
			conn, err := s.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			go func() { _, _ = io.WriteString(conn, said) }() // as much as is read
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > tellTimeout {
				t.Errorf("after %s", took)
			}
			s.want(t, 0, 0)
		})
	}
}
