package consensus

import (
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/cache"
)

// Constants for measuring the distance of members, which is the round-trip time of Raft
// heartbeats.
const (
	// distanceBeats is the number of heartbeats of which the fastest counts as the distance of a
	// member. The slower ones were delayed by queues and not by distance.
	distanceBeats = 16
	// nearParts is the smallest number of round trips that must fit into Timings.Heartbeat. If
	// fewer fit, one lost packet can cause an election; if none fits, no leader can stay in
	// office.
	nearParts = 3
	// wantedParts is the number of round trips that should fit into Timings.Heartbeat.
	wantedParts = 5
	// maxDistances is the largest number of members whose distance is stored.
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
	beats int // heartbeats measured since distanceBeats was last reached
	least time.Duration
	told  bool // a warning was logged, and the member has not come much closer since
}

func newDistances(heartbeat time.Duration, log *slog.Logger) *distances {
	return &distances{heartbeat: heartbeat, log: log, of: cache.New[string, distance](maxDistances)}
}

// answered records how long a heartbeat to a member took.
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

// wantedHeartbeat returns a setting for Timings.Heartbeat that tolerates a round trip well, in
// tenths of a second.
func wantedHeartbeat(roundTrip time.Duration) time.Duration {
	const step = 100 * time.Millisecond
	return (wantedParts*roundTrip + step - 1) / step * step
}
