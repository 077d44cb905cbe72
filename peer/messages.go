package peer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"golang.org/x/sync/semaphore"
)

// Bounds of bitswap messages that come in. boxo takes room for a whole message
// when its first byte arrives, and decoding one of empty entries takes a hundred
// times its size; both are somebody else's to choose.
const (
	// smallMessage needs no room of those below. A list of 1,024 wants, more
	// than are kept of a peer, is smaller.
	smallMessage = 64 << 10
	// unknownMessages is the room for larger ones of unknown peers, and
	// messageRoom for those of peers that this node asked.
	unknownMessages = 16 << 20
	messageRoom     = 128 << 20
	// peerMessages is the most of messageRoom that one peer has: an origin is anybody's to
	// name, and a message may take minutes to come.
	peerMessages = 16 << 20
	// messageIdle bounds the time without one byte of a message that has begun,
	// and the wait for room. A whole message of an unknown peer has to come within
	// messageTotal, one of a peer that was asked at messageRate bytes a second.
	messageIdle  = 30 * time.Second
	messageTotal = time.Minute
	messageRate  = 16 << 10
	// A message may repeat its parts so often: freeEntries times, and once more
	// for every entryBytes of its size. A want or an answer takes 36 bytes or
	// more, a block of 8 bytes 18.
	freeEntries = 1024
	entryBytes  = 16

	messageBuffer = 4 << 10
)

var errMessage = errors.New("bitswap message refused")

// bitswapHost is the public host as bitswap sees it: messages are held to their
// bounds before bitswap gets to read them.
type bitswapHost struct {
	host.Host
	ctx          context.Context // of the Peer
	unknownPeers *unknownPeers
	foreign      *semaphore.Weighted // of unknownMessages
	asked        *semaphore.Weighted // of messageRoom
	buffers      *sync.Pool          // of *[]byte

	// mu guards shares, those of peers that have or want some of asked.
	mu     sync.Mutex
	shares map[peer.ID]*share
}

// share is what a peer may have of a room.
type share struct {
	room  *semaphore.Weighted
	users int // messages that have or want some of it
}

// share returns a peer's, which leave gives back.
func (h *bitswapHost) share(id peer.ID) (room *semaphore.Weighted, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.shares[id]
	if s == nil {
		s = &share{room: semaphore.NewWeighted(peerMessages)}
		h.shares[id] = s
	}
	s.users++
	return s.room, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(h.shares, id)
		}
	}
}

func newBitswapHost(ctx context.Context, h host.Host, s *unknownPeers) *bitswapHost {
	return &bitswapHost{
		Host: h, ctx: ctx, unknownPeers: s,
		foreign: semaphore.NewWeighted(unknownMessages),
		asked:   semaphore.NewWeighted(messageRoom),
		buffers: &sync.Pool{New: func() any { return new([]byte) }},
		shares:  make(map[peer.ID]*share),
	}
}

// SetStreamHandler implements host.Host.
func (h *bitswapHost) SetStreamHandler(id protocol.ID, handle network.StreamHandler) {
	h.Host.SetStreamHandler(id, func(s network.Stream) {
		m := &messages{Stream: s, host: h, in: bufio.NewReaderSize(s, messageBuffer)}
		defer m.release()
		handle(m)
	})
}

// messages is a stream of which whole messages are read, each judged before the
// first byte of it is handed on. A message is its length as uvarint and its
// bytes.
type messages struct {
	network.Stream
	host *bitswapHost

	// Of the one reader.
	in    *bufio.Reader
	frame *[]byte // the message with its length; from host.buffers
	rest  []byte  // of it, not read yet
	free  func()  // gives back the room that it takes; nil: it takes none
}

// Read implements io.Reader.
func (m *messages) Read(b []byte) (int, error) {
	if len(m.rest) == 0 {
		if err := m.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// next reads one message. The one before has been dealt with: bitswap reads
// again when it is through.
func (m *messages) next() error {
	m.release()
	if _, err := m.in.Peek(1); err != nil {
		return err // the end, or nothing said for as long as the peer likes
	}
	if err := m.SetReadDeadline(time.Now().Add(messageIdle)); err != nil {
		return err
	}
	size, err := binary.ReadUvarint(m.in)
	if err != nil {
		return noEOF(err)
	}
	if size > network.MessageSizeMax {
		return fmt.Errorf("%w: %d bytes", errMessage, size)
	}
	if err := m.take(int64(size)); err != nil {
		return err
	}
	frame := m.grow(int(size))
	if err := m.fill(frame[len(frame)-int(size):]); err != nil {
		return err
	}
	if err := checkMessage(frame[len(frame)-int(size):]); err != nil {
		return err
	}
	m.rest = frame
	return m.SetReadDeadline(time.Time{})
}

// take waits for room for a message.
func (m *messages) take(size int64) error {
	if size <= smallMessage {
		return nil
	}
	ctx, cancel := context.WithTimeout(m.host.ctx, messageIdle)
	defer cancel()
	id := m.Conn().RemotePeer()
	rooms, leave := []*semaphore.Weighted{m.host.foreign}, func() {}
	if !m.host.unknownPeers.isUnknown(id) {
		var own *semaphore.Weighted
		own, leave = m.host.share(id)
		rooms = []*semaphore.Weighted{own, m.host.asked}
	}
	taken := 0
	m.free = func() {
		for _, room := range rooms[:taken] {
			room.Release(size)
		}
		leave()
	}
	for _, room := range rooms {
		if room.Acquire(ctx, size) != nil {
			m.release()
			return fmt.Errorf("%w: no room for %d bytes", errMessage, size)
		}
		taken++
	}
	return nil
}

// grow returns a buffer that begins with size as uvarint and has room for it.
func (m *messages) grow(size int) []byte {
	m.frame, _ = m.host.buffers.Get().(*[]byte)
	b := binary.AppendUvarint((*m.frame)[:0], uint64(size))
	if want := len(b) + size; cap(b) < want {
		b = append(make([]byte, 0, want), b...)
	}
	*m.frame = b
	return b[:len(b)+size]
}

// fill reads a message's bytes as long as they keep coming.
func (m *messages) fill(b []byte) error {
	limit := messageTotal
	if !m.host.unknownPeers.isUnknown(m.Conn().RemotePeer()) {
		limit += time.Duration(len(b)/messageRate) * time.Second
	}
	end := time.Now().Add(limit)
	for len(b) > 0 {
		now := time.Now()
		if now.After(end) {
			return fmt.Errorf("%w: not here after %s", errMessage, limit)
		}
		if err := m.SetReadDeadline(now.Add(messageIdle)); err != nil {
			return err
		}
		n, err := m.in.Read(b)
		if b = b[n:]; err != nil && len(b) > 0 {
			return noEOF(err)
		}
	}
	return nil
}

// release gives back what the last message took.
func (m *messages) release() {
	if m.frame != nil {
		m.host.buffers.Put(m.frame)
	}
	if m.free != nil {
		m.free()
	}
	m.frame, m.rest, m.free = nil, nil, nil
}

// checkMessage counts what a message repeats, in the message itself and in its
// wantlist (field 1), without decoding it.
func checkMessage(message []byte) error {
	const wantlist = 1
	limit := freeEntries + len(message)/entryBytes
	count := 0
	each := func(b []byte, inner func(field uint64, value []byte) error) error {
		for len(b) > 0 {
			if count++; count > limit {
				return fmt.Errorf("%w: too many entries for %d bytes", errMessage, len(message))
			}
			field, value, n := protoField(b)
			if n <= 0 {
				return fmt.Errorf("%w: malformed", errMessage)
			}
			b = b[n:]
			if err := inner(field, value); err != nil {
				return err
			}
		}
		return nil
	}
	none := func(uint64, []byte) error { return nil }
	return each(message, func(field uint64, value []byte) error {
		if field != wantlist {
			return nil
		}
		return each(value, none)
	})
}

// protoField reads one field of a protobuf message and returns its number, its
// bytes if it has a length, and how long it is; 0 says that it is malformed.
// Groups, which no version of bitswap has, are.
func protoField(b []byte) (field uint64, value []byte, n int) {
	tag, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, 0
	}
	size := uint64(0)
	switch tag & 7 {
	case 0: // varint
		_, m := binary.Uvarint(b[n:])
		if m <= 0 {
			return 0, nil, 0
		}
		return tag >> 3, nil, n + m
	case 1:
		size = 8
	case 2: // with a length
		length, m := binary.Uvarint(b[n:])
		if m <= 0 {
			return 0, nil, 0
		}
		size = length
		n += m
	case 5:
		size = 4
	default:
		return 0, nil, 0
	}
	if size > uint64(len(b)-n) {
		return 0, nil, 0
	}
	return tag >> 3, b[n : n+int(size)], n + int(size)
}
