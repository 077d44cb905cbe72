package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/ipfs/go-cid"
	"github.com/ipfs/go-datastore"
	dssync "github.com/ipfs/go-datastore/sync"
	"github.com/libp2p/go-libp2p-kad-dht/amino"
	"github.com/libp2p/go-libp2p-kad-dht/provider"
	"github.com/libp2p/go-libp2p-kad-dht/provider/stats"
	ma "github.com/multiformats/go-multiaddr"
	mh "github.com/multiformats/go-multihash"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxProvideQueue bounds the roots that wait to be announced. The next scan of all
	// roots finds those that did not fit.
	maxProvideQueue = 4096
	// provideBatch is how many roots the provider gets at a time.
	provideBatch = 256
	// provideTimeout bounds one announcement by Provide.
	provideTimeout = 2 * time.Minute
	// reprovideEvery is the interval at which every root is announced again. Provider
	// records live 48 h.
	reprovideEvery = 22 * time.Hour
	// rootsEvery is the interval at which the announced roots are compared with the roots
	// on this node.
	rootsEvery = 30 * time.Minute
	// Workers that announce roots, and connections of each worker. Some workers are reserved
	// for new roots.
	provideWorkers      = 4
	provideNewWorkers   = 1
	provideOldWorkers   = 2
	provideWorkerConns  = 16
	maxProvideRecord    = 10 * time.Second // longest time for one peer to take one record
	provideStatsTimeout = time.Second
	provideStatsAge     = time.Second
	// provideReady is how long new roots wait until the provider has measured the DHT.
	// provideReadyPoll is the interval at which the node checks whether it has.
	provideReady     = time.Minute
	provideReadyPoll = 100 * time.Millisecond
	// provideSettle is how long the counters of the provider may be too low after it got a batch:
	// between the queue and its start a batch is in no counter.
	provideSettle = 100 * time.Millisecond
	// cycleStartKey is the key under which the provider reads the start of its cycle, in
	// hexadecimal seconds; see cycleStart.
	cycleStartKey = "/cycle_start"
	// maxWaiting is the largest number of roots that were not announced yet and are saved for the
	// next start, about 34 bytes each. Other such roots are announced within reprovideEvery.
	maxWaiting = 1 << 16
)

// providing announces the roots of this node: new ones at once, and all of them every
// reprovideEvery. It announces one region of the DHT after the other, so that a lookup of
// peers serves all roots of a region.
type providing struct {
	keys *keystore // nil when routing is off

	// mu guards the fields below.
	mu       sync.Mutex
	sweep    *provider.SweepingProvider // nil while the sweeping provider does not run
	last     stats.Stats
	lastAt   time.Time
	lastSize int
	handed   []mh.Multihash // roots given to sweep since it was last idle
	handedAt time.Time      // when sweep had taken the last of these roots
	waiting  []mh.Multihash // see Peer.Waiting
}

// provideQueue has the roots that wait to be announced.
type provideQueue struct {
	roots chan cid.Cid

	// mu guards waits. It is never held while calling out.
	mu    sync.Mutex
	waits map[string]struct{} // hashes of the roots in the queue, without those that were withdrawn since
}

func newProvideQueue() *provideQueue {
	return &provideQueue{roots: make(chan cid.Cid, maxProvideQueue), waits: map[string]struct{}{}}
}

// add queues a root. It returns false if the queue is full.
func (q *provideQueue) add(c cid.Cid) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := string(c.Hash())
	if _, waits := q.waits[key]; waits {
		return true
	}
	select {
	case q.roots <- c:
		q.waits[key] = struct{}{}
		return true
	default:
		return false
	}
}

// take removes a root that came out of the queue from waits. It returns whether the root is
// still to be announced.
func (q *provideQueue) take(c cid.Cid) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, waits := q.waits[string(c.Hash())]
	delete(q.waits, string(c.Hash()))
	return waits
}

// batch takes roots out of the queue and returns the hashes of those that are still to be
// announced, at most provideBatch. c is a root that the caller has already taken out; it belongs to
// the batch too.
func (q *provideQueue) batch(c cid.Cid) (hashes []mh.Multihash) {
	for {
		if q.take(c) {
			hashes = append(hashes, c.Hash())
		}
		if len(hashes) == provideBatch {
			return hashes
		}
		select {
		case c = <-q.roots:
		default:
			return hashes
		}
	}
}

// Provide announces to the DHT now that this node stores c. It returns an error if the announcement
// fails within provideTimeout. With routing off it does nothing and returns nil.
func (p *Peer) Provide(ctx context.Context, c cid.Cid) error {
	if p.dht == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, provideTimeout)
	defer cancel()
	if err := p.dht.Provide(ctx, c, true); err != nil {
		return fmt.Errorf("peer: provide %s: %w", c, err)
	}
	return nil
}

// Announce queues c to be announced now and in every cycle. It does not block. It returns
// false if the queue is full; then the next scan of all roots announces c.
func (p *Peer) Announce(c cid.Cid) bool {
	if p.dht == nil {
		return true
	}
	return p.provide.add(c)
}

// Waiting returns, after Run has returned, the roots that were not announced for the first
// time yet, at most maxWaiting. They are the Options.Waiting of the next start. Without
// them the next start could not tell new roots from roots that are announced already, and
// the new ones would wait for their turn in the cycle.
func (p *Peer) Waiting() []mh.Multihash {
	p.providing.mu.Lock()
	defer p.providing.mu.Unlock()
	return p.providing.waiting
}

// Withdraw ends the announcements of c. Records at other peers expire within 48 hours. If
// it fails, the next scan of all roots corrects it.
func (p *Peer) Withdraw(c cid.Cid) {
	if p.dht == nil {
		return
	}
	p.provide.take(c)
	p.providing.mu.Lock()
	sweep := p.providing.sweep
	p.providing.mu.Unlock()
	var err error
	if sweep == nil {
		err = p.providing.keys.Delete(p.ctx, c.Hash())
	} else {
		err = sweep.StopProviding(c.Hash())
	}
	if err != nil && !errors.Is(err, provider.ErrClosed) {
		p.log.Debug("cannot withdraw provider records", "cid", c, "err", err)
	}
}

// announce runs the provider until ctx ends.
func (p *Peer) announce(ctx context.Context) error {
	o := &p.providing
	online := make(chan bool, 1)
	tell := func(now bool) func() {
		return func() {
			select { // only the newest value counts
			case <-online:
			default:
			}
			online <- now
		}
	}
	waiting := p.opts.Waiting // and later those that are not announced when ctx ends
	p.holdRoots(ctx, nil, false)
	sweep, err := p.newSweep(tell(true), tell(false))
	if err != nil {
		return fmt.Errorf("peer: providing: %w", err)
	}
	o.mu.Lock()
	o.sweep = sweep
	o.mu.Unlock()
	defer func() {
		p.keepWaiting(sweep, waiting)
		o.mu.Lock()
		o.sweep = nil
		o.mu.Unlock()
		if err := sweep.Close(); err != nil {
			p.log.Debug("cannot close the provider", "err", err)
		}
	}()
	tick := time.NewTicker(rootsEvery)
	defer tick.Stop()
	var queue <-chan cid.Cid // nil while the DHT is out of reach
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-online:
			if queue = nil; now {
				queue = p.provide.roots
				waiting = p.startWaiting(ctx, sweep, waiting)
			}
		case <-tick.C:
			waiting = append(waiting, p.holdRoots(ctx, sweep, queue != nil)...)
		case c := <-queue:
			if hashes := p.provide.batch(c); len(hashes) > 0 && !p.startProviding(ctx, sweep, hashes) {
				waiting = append(waiting, hashes...)
			}
		}
	}
}

// startWaiting announces those of the roots that are still on this node. It returns the
// roots that it did not reach before ctx ended.
func (p *Peer) startWaiting(ctx context.Context, sweep *provider.SweepingProvider, waiting []mh.Multihash) []mh.Multihash {
	for len(waiting) > 0 {
		batch := waiting[:min(len(waiting), provideBatch)]
		due, err := p.providing.keys.only(ctx, batch)
		if err != nil {
			p.log.DebugContext(ctx, "cannot announce roots", "roots", len(batch), "err", err)
		}
		if ctx.Err() != nil || len(due) > 0 && !p.startProviding(ctx, sweep, due) {
			return waiting
		}
		waiting = waiting[len(batch):]
	}
	return nil
}

// keepWaiting stores for Waiting these roots, the roots that the provider may not have
// announced, and the queue. The next start skips those that are no longer on this node.
func (p *Peer) keepWaiting(sweep *provider.SweepingProvider, waiting []mh.Multihash) {
	ctx, cancel := context.WithTimeout(context.Background(), provideStatsTimeout)
	defer cancel()
	o := &p.providing
	backoff.Wait(ctx, o.unsettled())
	s, err := sweep.Stats(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil || !isIdle(s) {
		waiting = append(waiting, o.handed...)
	}
	for q := p.provide; len(q.roots) > 0; { // no other goroutine reads the queue now
		waiting = append(waiting, q.batch(<-q.roots)...)
	}
	slices.SortFunc(waiting, slices.Compare)
	waiting = slices.CompactFunc(waiting, slices.Equal)
	o.waiting = waiting[:min(len(waiting), maxWaiting)]
}

// isIdle returns whether a provider has announced all new roots that it was given.
func isIdle(s stats.Stats) bool {
	return s.Queues.PendingKeyProvides == 0 && s.Operations.Ongoing.KeyProvides == 0
}

// startProviding announces roots now and in every cycle. It returns false if ctx ended
// first. Until the provider has measured the DHT, it silently adds new roots to the cycle
// only, so startProviding waits for up to provideReady. The provider has measured the DHT
// when its schedule has a region for a known root.
func (p *Peer) startProviding(ctx context.Context, sweep *provider.SweepingProvider, hashes []mh.Multihash) bool {
	idle, settled := false, p.providing.unsettled() <= 0
	_, err := p.providing.keys.Put(ctx, hashes...)
	for end := time.Now().Add(provideReady); err == nil && time.Now().Before(end); {
		if err = sweep.RefreshSchedule(); err != nil {
			break
		}
		var s stats.Stats
		if s, err = sweep.Stats(ctx); err == nil && s.Schedule.Regions > 0 {
			idle = settled && isIdle(s)
			break
		}
		if !backoff.Wait(ctx, provideReadyPoll) {
			return false
		}
	}
	var due []mh.Multihash // the roots that were not withdrawn meanwhile
	if err == nil {
		due, err = p.providing.keys.only(ctx, hashes)
	}
	if err == nil {
		p.providing.hand(due, idle)
		err = sweep.StartProviding(true, due...) // takes long for thousands of roots
		p.providing.taken()
	}
	if err != nil {
		p.log.DebugContext(ctx, "cannot announce roots", "roots", len(hashes), "err", err)
	}
	return ctx.Err() == nil
}

func (p *Peer) newSweep(online, offline func()) (*provider.SweepingProvider, error) {
	store := dssync.MutexWrap(datastore.NewMapDatastore())
	begun := fmt.Appendf(nil, "%08x", p.cycleStart(time.Now()).Unix())
	if err := store.Put(p.ctx, datastore.NewKey(cycleStartKey), begun); err != nil {
		return nil, err
	}
	addrs := p.dht.FilteredAddrs
	if p.opts.Routing == RoutingLAN {
		addrs = func() []ma.Multiaddr { return p.public.Addrs() }
	}
	return provider.New(
		provider.WithHost(p.public),
		provider.WithRouter(p.dht),
		provider.WithMessageSender(p.dht.MessageSender()),
		provider.WithSelfAddrs(addrs),
		provider.WithAddLocalRecord(func(ctx context.Context, hash mh.Multihash) error {
			return p.dht.Provide(ctx, cid.NewCidV1(cid.Raw, hash), false)
		}),
		provider.WithReplicationFactor(amino.DefaultBucketSize),
		provider.WithReprovideInterval(reprovideEvery),
		provider.WithMaxWorkers(provideWorkers),
		provider.WithDedicatedBurstWorkers(provideNewWorkers),
		provider.WithDedicatedPeriodicWorkers(provideOldWorkers),
		provider.WithMaxProvideConnsPerWorker(provideWorkerConns),
		provider.WithSendProviderRecordTimeout(maxProvideRecord),
		provider.WithKeystore(p.providing.keys),
		provider.WithDatastore(store),
		// Every region has a fixed time in the cycle, also after a restart, so that nodes
		// that restart together do not announce everything at once. In a private network
		// the restarted nodes themselves held the records in memory, so there everything is
		// announced at the start.
		provider.WithSkipBootstrapReprovide(p.opts.Routing != RoutingLAN),
		provider.WithConnectivityCallbacks(online, nil, offline),
	)
}

// cycleStart returns the start of the cycle that contains now. It follows from the id of
// the node, so a restart does not begin a new cycle.
func (p *Peer) cycleStart(now time.Time) time.Time {
	id := dhtKey(string(p.id))
	offset := time.Duration(binary.BigEndian.Uint64(id[:8]) % uint64(reprovideEvery))
	return now.Add(-offset).Truncate(reprovideEvery).Add(offset)
}

// holdRoots makes the keys of announced roots equal to the roots on this node, and announces up to
// maxWaiting roots whose keys were missing. While the DHT is out of reach (online is false), it
// only stores the missing keys. sweep is nil before the provider runs; then all keys are written
// again. holdRoots returns the roots that were not announced when ctx ended.
func (p *Peer) holdRoots(ctx context.Context, sweep *provider.SweepingProvider, online bool) []mh.Multihash {
	if p.opts.Roots == nil {
		return nil
	}
	limit := maxWaiting
	if !online {
		limit = 0
	}
	fresh, err := p.providing.keys.reconcile(ctx, p.opts.Roots, sweep == nil, limit)
	if ctx.Err() != nil {
		return nil // the scan did not see all roots
	}
	if err != nil {
		p.log.WarnContext(ctx, "cannot compare the announced roots with the roots on this node", "err", err)
	}
	// After the scan, because the scan keeps an old view of the state open and the provider
	// may block.
	return p.startWaiting(ctx, sweep, fresh) // some may be withdrawn by now
}

// hand records the roots that the node is about to give to the provider. idle says whether the
// provider had nothing to announce before.
func (o *providing) hand(hashes []mh.Multihash, idle bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if idle {
		o.handed = nil
	}
	o.handed = append(o.handed, hashes[:min(len(hashes), maxWaiting-len(o.handed))]...)
}

// taken records that the provider has accepted the roots of the last call of hand.
func (o *providing) taken() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.handedAt = time.Now()
}

// unsettled returns for how much longer the counters of the provider may miss a batch; see
// provideSettle.
func (o *providing) unsettled() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return provideSettle - time.Since(o.handedAt)
}

// size returns how many roots are announced, or the last known number if the keystore is
// busy.
func (o *providing) size() int {
	ctx, cancel := context.WithTimeout(context.Background(), provideStatsTimeout)
	defer cancel()
	n, err := o.keys.Size(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.lastSize = n
	}
	return o.lastSize
}

// stats returns the counters of the provider, at most provideStatsAge old.
func (o *providing) stats() stats.Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sweep == nil || time.Since(o.lastAt) < provideStatsAge {
		return o.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), provideStatsTimeout)
	defer cancel()
	if s, err := o.sweep.Stats(ctx); err == nil {
		o.last = s
	}
	o.lastAt = time.Now()
	return o.last
}

// collectors returns the metrics of providing, which are computed when they are read.
func (o *providing) collectors() []prometheus.Collector {
	gauge := func(name, help string, value func(stats.Stats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "holdfast", Subsystem: "provide", Name: name, Help: help,
		}, func() float64 { return value(o.stats()) })
	}
	counter := func(name, help string, value func(stats.Stats) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "holdfast", Subsystem: "provide", Name: name, Help: help,
		}, func() float64 { return float64(value(o.stats())) })
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "holdfast", Subsystem: "provide", Name: "roots", Help: "Roots that are announced to the IPFS network.",
		}, func() float64 { return float64(o.size()) }),
		gauge("online", "1 while the DHT is within reach.", func(s stats.Stats) float64 {
			if s.Connectivity.Status == "online" {
				return 1
			}
			return 0
		}),
		gauge("due_roots", "Roots that wait for their first announcement.", func(s stats.Stats) float64 { return float64(s.Queues.PendingKeyProvides) }),
		gauge("due_regions", "Regions of the DHT whose turn has come and that wait.", func(s stats.Stats) float64 { return float64(s.Queues.PendingRegionReprovides) }),
		counter("announced_roots_total", "Roots announced, again and again.", func(s stats.Stats) int64 { return s.Operations.Past.KeysProvided }),
		counter("failed_roots_total", "Announcements that failed.", func(s stats.Stats) int64 { return s.Operations.Past.KeysFailed }),
		gauge("regions_last_cycle", "Regions announced within the last cycle.", func(s stats.Stats) float64 { return float64(s.Operations.Past.RegionReprovidedLastCycle) }),
		gauge("next_timestamp_seconds", "When the next region is announced; 0 is never.", func(s stats.Stats) float64 {
			if s.Schedule.NextReprovideAt.IsZero() {
				return 0
			}
			return float64(s.Schedule.NextReprovideAt.Unix())
		}),
	}
}
