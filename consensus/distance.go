package consensus

import (
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/cache"
)

// How far away members may be.
const (
	// distanceBeats is how many heartbeats are compared: the fastest of them shows the
	// distance of a member, because the others have waited somewhere.
	distanceBeats = 16
	// nearParts is how many times the way there and back fits into Timings.Heartbeat
	// at the least. With less a lost packet is enough for an election, and with less
	// than one there is no leader at all.
	nearParts = 3
	// wantedParts is how many times it should.
	wantedParts = 5
	// maxDistances bounds the members that are measured.
	maxDistances = 1 << 10
)

// distances measures the round trip to members while this node leads. It warns the operator
// about members that are too far away for the time-out after which Raft elects another
// leader.
type distances struct {
	heartbeat time.Duration
	log       *slog.Logger

	// mu guards of.
	mu sync.Mutex
	of *cache.Cache[string, distance]
}

type distance struct {
	beats int // since the last check
	least time.Duration
	told  bool // a warning was logged, and the member has not come much closer since
}

func newDistances(heartbeat time.Duration, log *slog.Logger) *distances {
	return &distances{heartbeat: heartbeat, log: log, of: cache.New[string, distance](maxDistances)}
}

// answered notes how long a heartbeat to a member took.
func (d *distances) answered(member string, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, _ := d.of.Get(member)
	if m.beats == 0 || took < m.least {
		m.least = took
	}
	if m.beats++; m.beats == distanceBeats {
		m.beats = 0
		switch {
		case m.least > d.heartbeat/nearParts && !m.told:
			m.told = true
			d.log.Warn("a member is too far away for cluster.heartbeat: set it longer on every member", "node", member,
				"round_trip", m.least.Round(time.Millisecond), "heartbeat", d.heartbeat, "better", wantedHeartbeat(m.least))
		case m.least < d.heartbeat/wantedParts:
			m.told = false
		}
	}
	d.of.Put(member, m)
}

// wantedHeartbeat is what bears a round trip well, in tenths of a second.
func wantedHeartbeat(roundTrip time.Duration) time.Duration {
	const step = 100 * time.Millisecond
	return (wantedParts*roundTrip + step - 1) / step * step
}
