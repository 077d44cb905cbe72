package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
	"golang.org/x/sync/errgroup"
)

// readProtocol is the protocol that tells a member that this node reads content from it. The
// member does not delete the content until the stream ends. The stream contains the root's CID
// and a line feed; there is no answer. A member that does not know the protocol refuses the
// stream, and may delete unwanted content at once.
const readProtocol = "/holdfast/read/1"

const (
	// tellFrom is the size in bytes above which members are informed that a file is being read. A
	// file of at most this size is one block, so its reader has all of it after the first block.
	tellFrom = 1 << 20
	// tellTimeout limits the time to inform a member.
	tellTimeout = 5 * time.Second
	// tellAgain is the interval after which a member is informed again if it could not be
	// reached or has ended the stream.
	tellAgain = avoidFor
	// maxReaders is the largest number of streams with which members prevent the deletion of
	// files on this node. libp2p reserves 256 KiB for each stream, of the 1 GiB for streams of
	// members.
	maxReaders = 1024
)

// serveReaders accepts the streams of readProtocol until ctx ends. Content is not deleted on this
// node while a member's stream for it is open.
func (f *files) serveReaders(ctx context.Context, l net.Listener) error {
	return serveStreams(ctx, l, maxReaders, func(ctx context.Context, conn net.Conn) {
		if err := conn.SetReadDeadline(time.Now().Add(tellTimeout)); err != nil {
			return
		}
		root, err := readRoot(conn)
		if err != nil {
			return
		}
		defer f.reading(state.RootOf(root))()
		if err := conn.SetReadDeadline(time.Time{}); err == nil {
			_, _ = io.Copy(io.Discard, conn) // until the reader is done, or its node
		}
	})
}

// serveStreams accepts streams from l until ctx ends and calls answer for each one, at most limit
// at a time. It closes further streams at once. answer need not close its stream.
func serveStreams(ctx context.Context, l net.Listener, limit int, answer func(context.Context, net.Conn)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var answers errgroup.Group
	answers.SetLimit(limit)
	for {
		conn, err := l.Accept()
		if err != nil {
			ended := ctx.Err() != nil || errors.Is(err, net.ErrClosed)
			cancel()
			if waitErr := answers.Wait(); ended {
				return waitErr
			}
			return fmt.Errorf("accept streams of members: %w", err)
		}
		if !answers.TryGo(func() error {
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			defer func() { _ = conn.Close() }()
			answer(ctx, conn)
			return nil
		}) {
			_ = conn.Close()
		}
	}
}

// readRoot reads the CID of a root and the line feed after it.
func readRoot(conn io.Reader) (cid.Cid, error) {
	line, err := bufio.NewReader(io.LimitReader(conn, maxProgress)).ReadString('\n')
	if err != nil {
		return cid.Undef, err
	}
	return cid.Decode(strings.TrimSuffix(line, "\n"))
}

// teller informs members that this node reads a file from them, so that they do not delete its
// content. It ends this with close.
type teller struct {
	root cid.Cid
	dial func(ctx context.Context, id, proto string) (net.Conn, error)
	now  func() time.Time

	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	telling sync.WaitGroup

	// mu guards told.
	mu   sync.Mutex
	told map[state.NodeID]told
}

// told is the time at which a member was last informed or ended the stream, and whether the
// stream to it is still open.
type told struct {
	at    time.Time
	knows bool
}

func newTeller(root cid.Cid, dial func(ctx context.Context, id, proto string) (net.Conn, error), now func() time.Time) *teller {
	t := &teller{root: root, dial: dial, now: now, told: map[state.NodeID]told{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// tell informs a member in the background, unless the member is informed already or the last
// attempt is less than tellAgain ago.
func (t *teller) tell(id state.NodeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, known := t.told[id]
	if known && (last.knows || t.now().Sub(last.at).Abs() < tellAgain) || t.ctx.Err() != nil {
		return
	}
	t.told[id] = told{t.now(), true}
	t.telling.Go(func() {
		t.stay(id)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.told[id] = told{t.now(), false}
	})
}

// stay opens the stream to a member. It returns when the stream has ended or the file was closed,
// or if the member cannot be informed.
func (t *teller) stay(id state.NodeID) {
	ctx, cancel := context.WithTimeout(t.ctx, tellTimeout)
	defer cancel()
	conn, err := t.dial(ctx, string(id), readProtocol)
	if err != nil {
		return
	}
	defer context.AfterFunc(t.ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	if conn.SetWriteDeadline(time.Now().Add(tellTimeout)) != nil {
		return
	}
	if _, err := io.WriteString(conn, t.root.String()+"\n"); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// close ends all streams, so members may delete the content of the file. It waits until they have
// ended.
func (t *teller) close() {
	t.cancel()
	t.telling.Wait()
}
