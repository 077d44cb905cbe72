package consensus

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// meteredAccounts is the number of accounts of BenchmarkMetering, and meteredPause the pause between
// two commands that charge them, as in cluster/credits.
const (
	meteredAccounts = 100_000
	meteredPause    = 20 * time.Millisecond
)

// metered is three nodes on real disks with many accounts that have credits.
type metered struct {
	nodes   []*diskNode
	periods state.Millis // periods that have passed
}

func newMetered(b *testing.B) *metered {
	b.Helper()
	m, network := &metered{}, newMemNetwork()
	for _, id := range []state.NodeID{"n1", "n2", "n3"} {
		m.nodes = append(m.nodes, openOnDisk(b, network, id, b.TempDir()))
	}
	m.nodes[0].found(b)
	for _, other := range m.nodes[1:] {
		m.nodes[0].admit(b, other)
	}
	soon(b, "all vote, at the newest level", func() bool {
		voters := 0
		for _, role := range m.nodes[0].Roles() {
			if role == roleVoter {
				voters++
			}
		}
		level, _ := m.nodes[0].FeatureLevel()
		return voters == 3 && m.nodes[1].Ready() == nil && m.nodes[2].Ready() == nil && level == state.NewestFeatureLevel
	})
	m.must(b, pin("first"))
	report := heldBy(b, m.nodes[0].Node, cids[0])
	for _, id := range []state.NodeID{"n1", "n2", "n3"} {
		m.must(b, &state.ReportCopies{Node: id, Items: []state.CopyReport{report}})
	}
	var all sync.WaitGroup
	const writers = 256
	for w := range writers {
		all.Go(func() {
			for i := w; i < meteredAccounts; i += writers {
				id := m.account(i)
				m.must(b, &state.OpenAccount{Account: state.Account{ID: id, Email: string(id) + "@example.org"}})
				m.must(b, &state.PostCredits{Posting: state.Posting{ID: "g", Account: id, Kind: state.Grant, Credits: 1 << 40}})
				m.must(b, &state.CreatePin{Pin: state.Pin{ID: "p", Account: id, CID: cids[0], Created: 1}, Nodes: []state.NodeID{"n1"}})
			}
		})
	}
	all.Wait()
	m.must(b, m.command())
	return m
}

func (m *metered) account(i int) state.AccountID { return state.AccountID(fmt.Sprintf("a%06d", i)) }

func (m *metered) must(b *testing.B, cmd state.Command) {
	b.Helper()
	if _, err := m.nodes[0].Propose(context.Background(), cmd); err != nil {
		b.Errorf("%T: %v", cmd, err)
	}
}

// command charges each account 3 credits for the gigabyte that it stores.
func (m *metered) command() *state.ChargeStorage {
	return &state.ChargeStorage{Now: m.periods * 20_000, Every: 20_000, Rate: 3 * 30 * 24 * 3600 / 20}
}

// charge charges all accounts, period after period, until ctx ends. It returns how many accounts were
// charged.
func (m *metered) charge(ctx context.Context, b *testing.B) (charged int) {
	b.Helper()
	for m.periods++; ctx.Err() == nil; {
		m.must(b, m.command())
		charged += state.MaxCharged
		view, release := m.nodes[0].LocalView()
		if due, _ := view.ChargeDue(*m.command()); !due {
			m.periods++
		}
		release()
		<-time.After(meteredPause)
	}
	return charged
}

// write has clients that pin through a follower until the time is over. It returns the 99th percentile
// of how long a write took.
func (m *metered) write(b *testing.B, clients int, during time.Duration) (p99 time.Duration, writes int) {
	b.Helper()
	var all sync.WaitGroup
	took := make([][]time.Duration, clients)
	end := time.Now().Add(during)
	for w := range clients {
		all.Go(func() {
			for time.Now().Before(end) {
				began := time.Now()
				if _, err := m.nodes[2].Propose(context.Background(), pin(fmt.Sprintf("%d-%d", w, began.UnixNano()))); err != nil {
					b.Error(err)
					return
				}
				took[w] = append(took[w], time.Since(began))
			}
		})
	}
	all.Wait()
	every := slices.Concat(took...)
	slices.Sort(every)
	return every[len(every)*99/100], len(every)
}

// BenchmarkMetering is the 99th percentile of writes of 16 clients, alone and while the leader charges
// 100,000 accounts in period after period.
func BenchmarkMetering(b *testing.B) {
	const during = 5 * time.Second
	m := newMetered(b)
	for b.Loop() {
		alone, n := m.write(b, 16, during)
		ctx, cancel := context.WithCancel(context.Background())
		charged := make(chan int)
		go func() { charged <- m.charge(ctx, b) }()
		beside, besides := m.write(b, 16, during)
		cancel()
		b.ReportMetric(float64(alone.Microseconds())/1000, "ms/p99-alone")
		b.ReportMetric(float64(beside.Microseconds())/1000, "ms/p99-beside")
		b.ReportMetric(float64(n)/during.Seconds(), "writes/s-alone")
		b.ReportMetric(float64(besides)/during.Seconds(), "writes/s-beside")
		b.ReportMetric(float64(<-charged)/during.Seconds(), "charged/s")
	}
	for _, n := range m.nodes {
		n.end()
	}
}
