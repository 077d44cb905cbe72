package node

import (
	"context"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/gossip"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// wire carries the samples of the nodes that are put into it.
type wire chan gossip.Sample

func (w wire) Publish(context.Context, []byte) error { return nil }

func (w wire) Next(ctx context.Context) (from string, data []byte, err error) {
	select {
	case s := <-w:
		data, err = s.Encode()
		return string(s.Node), data, err
	case <-ctx.Done():
		return "", nil, ctx.Err()
	}
}

// A member counts as short of disk space if its last sample says Tight or Refuses, and no other member does. Such a
// member should not lead.
func TestMembersWithoutRoomAreKnownByTheirSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := make(wire)
		g := gossip.New(gossip.Options{
			Self: "a", Topic: w, Measure: func() gossip.Sample { return gossip.Sample{} }, Now: time.Now,
			Members: func() []state.NodeID { return []state.NodeID{"a", "b", "c", "d", "e"} }, Logger: slog.New(slog.DiscardHandler),
		})
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		var n Node
		if n.tightElsewhere("b") {
			t.Error("before anybody is heard of")
		}
		n.heard.Store(g.Table())
		at := state.MillisOf(time.Now())
		for _, s := range []gossip.Sample{
			{Node: "b", Tight: true}, {Node: "c"}, {Node: "d", Refuses: true}, {Node: "e", Full: true},
		} {
			s.Start, s.Seq, s.Time = at, 1, at
			w <- s
		}
		synctest.Wait()
		for id, want := range map[state.NodeID]bool{"a": false, "b": true, "c": false, "d": true, "e": false, "unheard": false} {
			if got := n.tightElsewhere(id); got != want {
				t.Errorf("%s: %t, want %t", id, got, want)
			}
		}
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The size of a segment is the setting or a quarter of the disk's reserve, whichever is smaller, but not less than 4
// MiB for the latter. A full disk has at most its reserve free. A compaction may use half of that without the
// ballast, and needs room for the live blocks of a segment.
func TestSegmentsAreSmallWhereTheReserveIs(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		name             string
		setting, reserve uint64
		want             int64
	}{
		{"defaults on a large disk", 256 * mib, 1024 * mib, 256 * mib},
		{"a disk of 10 GB", 256 * mib, 500 * mib, 125 * mib},
		{"the smallest reserve", 256 * mib, 64 * mib, 16 * mib},
		{"hardly a reserve", 256 * mib, mib, 4 * mib},
		{"a small setting", 64 << 10, 64 * mib, 64 << 10},
		{"a disk that is not watched", 1024 * mib, math.MaxUint64, 1024 * mib},
	} {
		if got := segmentBytes(tc.setting, tc.reserve); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}
