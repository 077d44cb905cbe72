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

// Bounds of inbound bitswap messages. boxo allocates memory for a whole message when its
// first byte arrives, and decoding a message of empty entries takes a hundred times its
// size. The sender chooses both.
const (
	// smallMessage is the largest message that does not count against the limits below. A
	// list of 1,024 wants, more than are kept for a peer, is smaller.
	smallMessage = 64 << 10
	// unknownMessages is the memory for larger messages of unknown peers. messageRoom is the
	// memory for larger messages of peers that this node has asked for blocks.
	unknownMessages = 16 << 20
	messageRoom     = 128 << 20
	// peerMessages is the maximum part of messageRoom for one peer. Any user can name an
	// origin, and a message may take minutes to arrive.
	peerMessages = 16 << 20
	// messageIdle bounds the time without a byte of a message that has begun, and the wait
	// for memory. A message of an unknown peer must arrive within messageTotal. A message
	// of a peer that was asked gets 1 s more for each messageRate bytes.
	messageIdle  = 30 * time.Second
	messageTotal = time.Minute
	messageRate  = 16 << 10
	// A message may have freeEntries parts, and one more for each entryBytes of its size. In a
	// message, a want or an answer takes 36 bytes or more, and a block of 8 bytes takes 18.
	freeEntries = 1024
	entryBytes  = 16

	messageBuffer = 4 << 10
)

var errMessage = errors.New("bitswap message refused")

// bitswapHost is the public host for bitswap. It checks messages before bitswap reads them.
type bitswapHost struct {
	host.Host
	ctx          context.Context // context of the Peer
	unknownPeers *unknownPeers
	foreign      *semaphore.Weighted // semaphore of unknownMessages bytes
	asked        *semaphore.Weighted // semaphore of messageRoom bytes
	buffers      *sync.Pool          // holds *[]byte

	// mu guards shares. It has an entry for each peer whose messages hold or wait for a
	// part of asked.
	mu     sync.Mutex
	shares map[peer.ID]*share
}

// share is the part of messageRoom that the messages of one peer may use.
type share struct {
	room  *semaphore.Weighted
	users int // number of messages that hold or wait for a part of the memory
}

// share returns the share of a peer. The caller must call leave when it no longer uses the share.
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

// messages is a stream that reads whole messages and checks each before it passes the first
// byte on. A message is its length as uvarint and its bytes.
type messages struct {
	network.Stream
	host *bitswapHost

	// The following fields are used by the one reader only.
	in    *bufio.Reader
	frame *[]byte // the message with its length; from host.buffers
	rest  []byte  // the part of the message that was not read yet
	free  func()  // releases the memory that the message takes; nil if there is none
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

// next reads one message. bitswap has processed the message before, because it reads again
// only then.
func (m *messages) next() error {
	m.release()
	if _, err := m.in.Peek(1); err != nil {
		return err // the end of the stream, or of an idle time that the peer decides
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

// take waits until there is memory for a message of size bytes. It fails after messageIdle.
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

// grow returns a buffer with size as uvarint, followed by size bytes for the message, which the caller
// overwrites.
func (m *messages) grow(size int) []byte {
	m.frame, _ = m.host.buffers.Get().(*[]byte)
	b := binary.AppendUvarint((*m.frame)[:0], uint64(size))
	if want := len(b) + size; cap(b) < want {
		b = append(make([]byte, 0, want), b...)
	}
	*m.frame = b
	return b[:len(b)+size]
}

// fill reads the bytes of a message within the time limits.
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

// release frees the memory that the last message has taken, so that other messages can use it.
func (m *messages) release() {
	if m.frame != nil {
		m.host.buffers.Put(m.frame)
	}
	if m.free != nil {
		m.free()
	}
	m.frame, m.rest, m.free = nil, nil, nil
}

// checkMessage counts the parts of a message and of its wantlist (field 1) without decoding
// them. It returns an error if there are too many.
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

// protoField reads one field of a protobuf message. It returns the field number, the bytes
// if the field has a length, and the size of the field; 0 means malformed. Groups are
// malformed, because no version of bitswap uses them.
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
