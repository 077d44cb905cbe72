package consensus

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits of a follower's readings of the leader's clock. The follower uses them to set deadlines
// that the leader checks on its own clock.
const (
	// deadlineLevel is the level from which members understand deadlines on the leader's clock.
	deadlineLevel state.FeatureLevel = 5
	// clockAge is the greatest age of a reading from which a deadline may be computed.
	clockAge = 10 * time.Second
	// clockDrift limits the drift between two monotonic clocks: 1 part in clockDrift. Quartz
	// clocks drift ten times less, and the kernel's time correction changes their rate by at most
	// half of this limit.
	clockDrift = 1000
	// readingBytes is the size in bytes of an encoded reading. An encoded deadline has the same
	// size.
	readingBytes = 16
)

// clock is the monotonic clock of this process. Readings of two processes cannot be compared, so
// each reading includes the name of its clock. The name is random and changes at each start of
// the process.
type clock struct {
	name  uint64
	began time.Time
}

func newClock() (clock, error) {
	var name [8]byte
	if _, err := rand.Read(name[:]); err != nil {
		return clock{}, fmt.Errorf("name a clock: %w", err)
	}
	return clock{name: binary.BigEndian.Uint64(name[:]), began: time.Now()}, nil
}

// now returns a reading of the clock.
func (c clock) now() reading { return reading{clock: c.name, at: time.Since(c.began)} }

// when converts a reading to a local time. The second result is false if the reading is from
// another clock.
func (c clock) when(r reading) (time.Time, bool) { return c.began.Add(r.at), r.clock == c.name }

// reading is a moment on the clock of one process.
type reading struct {
	clock uint64
	at    time.Duration // time since the clock began; not negative
}

// append appends the wire form of the reading to b: two numbers of 8 bytes, big endian.
func (r reading) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, r.clock)
	return binary.BigEndian.AppendUint64(b, uint64(r.at))
}

// cutReading decodes the reading at the start of b and returns the bytes after it. ok is false if
// b is too short or the reading is invalid.
func cutReading(b []byte) (r reading, rest []byte, ok bool) {
	if len(b) < readingBytes {
		return reading{}, nil, false
	}
	r = reading{clock: binary.BigEndian.Uint64(b), at: time.Duration(binary.BigEndian.Uint64(b[8:]))}
	return r, b[readingBytes:], r.at >= 0
}

// leaderClock is what a node knows about the clock of its leader.
type leaderClock struct {
	asking chan struct{} // has a token while no goroutine asks

	// mu guards the fields below.
	mu    sync.Mutex
	of    <-chan struct{} // leadership to which the reading belongs, identified by the channel that leaderGate.get returns
	read  reading
	heard time.Time // local time at which the reading had arrived
}

func newLeaderClock() *leaderClock {
	c := &leaderClock{asking: make(chan struct{}, 1)}
	c.asking <- struct{}{}
	return c
}

// heardOf stores a reading that has just arrived from the leader. of identifies the leadership.
func (c *leaderClock) heardOf(of <-chan struct{}, r reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of, c.read, c.heard = of, r, time.Now()
}

// known returns the stored reading of a leadership and the local time of its arrival. ok is false
// if there is no reading or the reading is too old.
func (c *leaderClock) known(of <-chan struct{}) (r reading, heard time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read, c.heard, c.of == of && time.Since(c.heard) < clockAge
}

// by converts a moment of this node's clock into a reading of the leader's clock that is exact or
// slightly too early. The leader read its clock before this node received the reading. At the
// given moment the leader's clock therefore shows at least the reading plus the time since its
// arrival. If by knows no recent reading, it calls ask to get one.
func (c *leaderClock) by(ctx context.Context, of <-chan struct{}, moment time.Time, ask func() (reading, error)) (reading, error) {
	r, heard, ok := c.known(of)
	if !ok {
		select {
		case <-c.asking:
		case <-ctx.Done():
			return reading{}, fmt.Errorf("%w: %w", errUntaken, ctx.Err())
		}
		defer func() { c.asking <- struct{}{} }()
		if r, heard, ok = c.known(of); !ok { // otherwise another goroutine has asked meanwhile
			fresh, err := ask()
			if err != nil {
				return reading{}, fmt.Errorf("%w: the leader's clock: %w", errUntaken, err)
			}
			c.heardOf(of, fresh)
			r, heard = fresh, time.Now()
		}
	}
	left := moment.Sub(heard)
	r.at = max(0, r.at+left-left.Abs()/clockDrift)
	return r, nil
}
