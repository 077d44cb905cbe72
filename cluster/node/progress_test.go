package node

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/cache"
	"github.com/holdfast-ipfs/holdfast/internal/nettest"
	"github.com/ipfs/go-cid"
)

const progressCID = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"

// Progress returns what this node and the members that answer within progressTimeout say, and does not ask again at
// once.
func TestProgressAsksTheMembersThatWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := state.RootOf(cid.MustParse(progressCID))
		far, silent, foul := nettest.NewPipes(), nettest.NewPipes(), nettest.NewPipes()
		there := &progress{look: func(_ context.Context, k state.RootKey) (tracker.Seen, bool) {
			return tracker.Seen{Fetching: true, Bytes: 1 << 40, Blocks: 7, Attempts: 2}, k == root
		}}
		ctx, cancel := context.WithCancel(t.Context())
		var served sync.WaitGroup
		defer served.Wait()
		defer cancel()
		served.Go(func() {
			if err := there.serve(ctx, far); err != nil {
				t.Error(err)
			}
		})
		// One that takes the question and says nothing, one that says nonsense.
		served.Go(func() {
			c, err := silent.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, c) // until the other side gives up
		})
		served.Go(func() {
			c, err := foul.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.ReadFull(c, make([]byte, len(progressCID)+1))
			_, _ = io.WriteString(c, `{"position":-5}`+strings.Repeat(" ", maxProgress))
			_ = c.Close()
		})
		dialled := 0
		var mu sync.Mutex // of dialled
		here := &progress{
			self: "self", now: time.Now, kept: cache.New[state.RootKey, said](maxProgressKept),
			down: func(id state.NodeID) bool { return id == "down" },
			look: func(context.Context, state.RootKey) (tracker.Seen, bool) { return tracker.Seen{Position: 4}, true },
			dial: func(ctx context.Context, id, _ string) (net.Conn, error) {
				mu.Lock()
				dialled++
				mu.Unlock()
				return map[string]*nettest.Pipes{"far": far, "silent": silent, "foul": foul}[id].Dial(ctx)
			},
		}
		began := time.Now()
		got := here.Progress(t.Context(), root, []state.NodeID{"self", "far", "silent", "foul", "down"})
		if took := time.Since(began); took > progressTimeout {
			t.Errorf("it took %s", took)
		}
		want := map[pins.Progress]bool{{Node: "self", Position: 4}: true, {Node: "far", Fetching: true, Bytes: 1 << 40, Blocks: 7, Attempts: 2}: true}
		if len(got) != len(want) || !want[got[0]] || !want[got[1]] {
			t.Errorf("got %+v", got)
		}
		if again := here.Progress(t.Context(), root, []state.NodeID{"self", "far"}); len(again) != 2 || dialled != 3 {
			t.Errorf("asked at once again: %+v, %d dials", again, dialled)
		}
		<-time.After(progressFresh)
		other := state.RootOf(cid.MustParse("bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"))
		if got := here.Progress(t.Context(), other, []state.NodeID{"far"}); len(got) != 0 {
			t.Errorf("of a root that it does not know: %+v", got)
		}
		here.asking = maxAsking
		if got := here.Progress(t.Context(), root, []state.NodeID{"self"}); got != nil {
			t.Errorf("above the bound: %+v", got)
		}
	})
}

// A node closes the stream of a bad request for progress without an answer.
func TestProgressAnswersNobodyWhoAsksBadly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &progress{look: func(context.Context, state.RootKey) (tracker.Seen, bool) {
			t.Error("it looked")
			return tracker.Seen{}, false
		}}
		for _, text := range []string{"\n", "x\n", strings.Repeat("b", maxProgress+1), progressCID} {
			getsNoAnswer(t, text, func(far net.Conn) { p.answer(t.Context(), far) })
		}
	})
}

// getsNoAnswer promises that a node that answers a stream sends nothing for a text and closes the stream.
func getsNoAnswer(t *testing.T, text string, answer func(far net.Conn)) {
	t.Helper()
	near, far := net.Pipe()
	var done sync.WaitGroup
	done.Go(func() {
		defer far.Close()
		answer(far)
	})
	_, _ = io.WriteString(near, text) // it may hang up before the end
	if data, err := io.ReadAll(near); len(data) > 0 {
		t.Errorf("%.20q: %q %v", text, data, err)
	}
	done.Wait()
}
