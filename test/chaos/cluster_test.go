package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/consensus"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/durable"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

const (
	// usual is how many nodes there are, unless a seed draws more, and maxNodes the most
	// of these: that is how many vote. A scenario may have more nodes, up to manyNodes.
	usual       = 3
	maxNodes    = 5
	manyNodes   = 9
	guestNumber = manyNodes
	// patience is how long, in virtual time, the cluster may take to start, and
	// to be of one mind again when all faults are over.
	patience = 2 * time.Minute
	// pollEvery is how often conditions are looked at, in virtual time.
	pollEvery = 100 * time.Millisecond
	// commitEvery is Timings.Commit here: idle nodes cost the test more than
	// latency does.
	commitEvery = 10 * time.Millisecond
	// How often snapshots are made in the runs that make many.
	snapshotsEvery = 2 * time.Second
	snapshotAfter  = 64
	snapshotTrail  = 16
	// reserve is what is kept of each disk, in bytes.
	reserve = 4 << 20
)

// life is one node between a start and its end.
type life struct {
	*node.Node
	host *host

	calls   sync.WaitGroup // of clients, under way
	ctx     context.Context
	hangUp  context.CancelFunc // ends the calls
	crashed atomic.Bool        // its answers do not reach anybody any more
	stop    context.CancelFunc
	ended   chan error
}

// member is the place of one node, through its lives.
type member struct {
	number int
	folder string
	lives  int
	disk   platter      // under its Raft log
	store  platter      // under its state
	ahead  atomic.Int64 // of true time, in nanoseconds: its clock
	full   atomic.Bool  // the disk under its blocks is

	// mu guards life.
	mu   sync.Mutex
	life *life // nil while the node is down
}

// spaceOf says that each folder of the member is a disk of its own, and whether that of the
// blocks is full. That of Raft's log never is: the loop in which Raft hands leadership over
// does not wait, and virtual time would stand still.
func (m *member) spaceOf(path string) (durable.Space, error) {
	s, err := durable.SpaceOf(path)
	name := filepath.Base(path)
	s.Device = uint64(name[0])
	if name == "blocks" && m.full.Load() {
		s.Free = reserve / 4 // beside the ballast, a third
	}
	return s, err
}

// hurt tells whether this life may have ended because of a disk.
func (m *member) hurt() bool { return m.disk.hurt() || m.store.hurt() }

// now returns the life that runs, or nil.
func (m *member) now() *life {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.life
}

// take ends a life for everybody who calls: nil says that there is none.
func (m *member) take() *life {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.life
	m.life = nil
	return l
}

// call begins a client's call; nil says that nobody answers there. The caller
// ends it with calls.Done.
func (m *member) call() *life {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life != nil {
		m.life.calls.Add(1)
	}
	return m.life
}

// cluster is some nodes on a simulated network.
type cluster struct {
	base    string
	log     *slog.Logger
	network *network
	bug     func(pins.State) pins.State
	market  *market
	members []*member // nil: it did not start yet
	ids     map[state.NodeID]int
	join    string
	often   bool          // snapshots, and few entries behind them
	lies    bool          // the log says that it stored what it did not
	lives   chan struct{} // one token: who starts or ends nodes has it
	guest   *member       // nil: none is here
	guests  int           // that were
	taken   atomic.Int64  // snapshots of a leader's that a node took over
	fired   [faults]int   // faults that happened
	lost    atomic.Bool   // the blocks of a node were
}

// start opens and runs a node. It does not wait until it is ready.
func (c *cluster) start(ctx context.Context, m *member) error {
	conf := config.Default()
	conf.Data = m.folder
	conf.Node.Name = fmt.Sprintf("node%d", m.number+1)
	conf.Peer.Listen = nil // no IPFS network here: content comes from members
	conf.Peer.ClusterListen = []string{clusterAddr(m.number)}
	conf.Peer.Routing = config.RoutingOff
	conf.Storage.Reserve = reserve
	conf.Credits.GBMonth, conf.Credits.Period = state.MaxRate, chargedEvery
	timings := consensus.Timings{Commit: commitEvery}
	if c.often {
		timings.SnapshotInterval, timings.SnapshotThreshold, timings.TrailingLogs = snapshotsEvery, snapshotAfter, snapshotTrail
	}
	if m.number > 0 && m.lives == 0 {
		conf.Cluster.Join = []string{c.join}
		conf.Cluster.SecretFile = filepath.Join(c.members[0].folder, node.SecretFile)
	}
	m.lives++
	l := &life{host: c.network.host(m.number), ended: make(chan error, 1)}
	m.disk.fresh()
	m.store.fresh()
	all, clusterOnly := l.host.options()
	n, err := node.Open(ctx, node.Options{
		Config: conf, Version: "chaos", Logger: c.log.With("at", m.number+1), HostOptions: all, ClusterOptions: clusterOnly,
		Timings: timings, PinState: c.bug, Facilitator: &counter{c.market, l},
		Now: func() time.Time { return time.Now().Add(time.Duration(m.ahead.Load())) },
		RaftLog: func(inner consensus.Log) consensus.Log {
			if c.lies {
				inner = &unsynced{Log: inner}
			}
			return log{inner, &m.disk}
		},
		SpaceOf:    m.spaceOf,
		StateStore: func(inner consensus.Store) consensus.Store { return replica{inner, &m.store} },
	})
	if err != nil {
		return errors.Join(fmt.Errorf("open node %d: %w", m.number+1, err), l.host.close())
	}
	l.Node = n
	l.ctx, l.hangUp = context.WithCancel(context.Background())
	running, stop := context.WithCancel(context.Background())
	l.stop = stop
	go func() { l.ended <- n.Run(running) }()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.life = l
	return nil
}

// found starts all nodes and waits until as many vote as can.
func (c *cluster) found(ctx context.Context) error {
	for i := range c.members {
		m := &member{number: i, folder: filepath.Join(c.base, fmt.Sprintf("node%d", i+1))}
		c.members[i] = m
		if err := c.start(ctx, m); err != nil {
			return err
		}
		if err := await(ctx, fmt.Sprintf("node %d is ready", i+1), func() bool { return m.life.Ready() == nil }); err != nil {
			return err
		}
		s, err := m.life.Members().Status(ctx)
		if err != nil {
			return err
		}
		c.ids[s.Node.ID] = i
		if i == 0 {
			c.join = s.Node.ClusterAddrs[0]
		}
	}
	voters := min(maxNodes, len(c.members)-(len(c.members)+1)%2) // an odd number votes
	return await(ctx, fmt.Sprintf("%d vote", voters), func() bool {
		for _, m := range c.members {
			s, err := m.life.Members().Status(ctx)
			if err != nil || len(s.Peers) != len(c.members) {
				return false
			}
			votes := 0
			for _, p := range s.Peers {
				if p.Role == "voter" {
					votes++
				}
			}
			if votes != voters {
				return false
			}
		}
		return true
	})
}

// leader returns the number of the node that leads, as a node that runs believes.
func (c *cluster) leader(ctx context.Context) (int, bool) {
	for _, m := range c.members {
		l := m.now()
		if l == nil {
			continue
		}
		s, err := l.Members().Status(ctx)
		if number, known := c.ids[s.Leader]; err == nil && known {
			return number, true
		}
	}
	return 0, false
}

// await polls until cond holds, in virtual time.
func await(ctx context.Context, what string, cond func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := harness.Poll(ctx, pollEvery, func() (bool, error) { return cond(), nil }); err != nil {
		return fmt.Errorf("%s: not within %v: %w", what, patience, err)
	}
	return nil
}

// isolate cuts a node off, or mends it. A guest has the number guestNumber.
func (c *cluster) isolate(number int, cut bool) {
	for other := range guestNumber + 1 {
		if other != number {
			c.network.set(link{number, other}, cut)
			c.network.set(link{other, number}, cut)
		}
	}
}

// exclusive lets nobody else start or end nodes until the function that it
// returns is called.
func (c *cluster) exclusive() func() {
	c.lives <- struct{}{}
	return func() { <-c.lives }
}

// restart ends a node as a signal would, handing leadership over, and starts it
// again.
func (c *cluster) restart(ctx context.Context, number int, down time.Duration) error {
	defer c.exclusive()()
	m := c.members[number]
	l := m.take()
	l.calls.Wait()
	if err := m.end(l); err != nil && !m.hurt() {
		return fmt.Errorf("restart node %d: %w", number+1, err)
	}
	harness.Pause(ctx, down)
	return c.start(ctx, m)
}

// revive starts a node again that ended because of its disk, whichever life met
// it. If was has to have ended, and lives on, that is wrong.
func (c *cluster) revive(ctx context.Context, number int, was *life, must bool) error {
	defer c.exclusive()()
	m := c.members[number]
	l := m.now()
	select {
	case err := <-l.ended:
		l.ended <- err
		if !errors.Is(err, consensus.ErrBroken) && !errors.Is(err, consensus.ErrStalled) {
			return fmt.Errorf("node %d ended, and not because of its disk: %w", number+1, err)
		}
	default:
		if must && l == was {
			return fmt.Errorf("node %d lives on after a write failed", number+1)
		}
		return nil
	}
	m.take()
	l.hangUp()
	l.calls.Wait()
	if err := m.end(l); err != nil {
		c.log.Info("the life on a bad disk ended", "err", err)
	}
	return c.start(ctx, m)
}

// crash takes the power from some nodes at one moment and starts them again
// after a while. Their lives go on with what was in the files at that moment,
// synced or not, as after a kill -9; nobody hears of their end.
func (c *cluster) crash(ctx context.Context, down time.Duration, numbers ...int) error {
	return c.crashAnd(ctx, down, func(*member) error { return nil }, numbers...)
}

// crashAnd is crash, with something done to what is left.
func (c *cluster) crashAnd(ctx context.Context, down time.Duration, then func(*member) error, numbers ...int) error {
	defer c.exclusive()()
	lives := make([]*life, len(numbers))
	for i, number := range numbers {
		m := c.members[number]
		c.isolate(number, true)
		lives[i] = m.take()
		lives[i].crashed.Store(true)
	}
	synctest.Wait() // nothing runs, so nothing is being written
	for _, number := range numbers {
		m := c.members[number]
		left := m.folder
		m.folder = filepath.Join(c.base, fmt.Sprintf("node%d.%d", number+1, m.lives))
		if err := os.CopyFS(m.folder, os.DirFS(left)); err != nil {
			return fmt.Errorf("copy what a crash leaves: %w", err)
		}
		if err := then(m); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(left) }() // all of base goes at the end
	}
	// What is left of the old lives ends cut off from everything, and whatever
	// they say of it does not count.
	var ends sync.WaitGroup
	for i, l := range lives {
		m := c.members[numbers[i]]
		ends.Go(func() {
			l.hangUp()
			l.stop() // else attempts to record payments would wait for a majority
			l.calls.Wait()
			if err := m.end(l); err != nil {
				c.log.Info("the old life ended", "err", err)
			}
		})
	}
	ends.Wait()
	harness.Pause(ctx, down)
	for _, number := range numbers {
		c.isolate(number, false)
		if err := c.start(ctx, c.members[number]); err != nil {
			return err
		}
	}
	return nil
}

// welcome lets one more node join, stay for a while and be removed.
func (c *cluster) welcome(ctx context.Context, d time.Duration) error {
	release := c.exclusive()
	if c.guest != nil {
		release()
		return errInvalid("a guest is here already")
	}
	c.guests++
	m := &member{number: guestNumber, folder: filepath.Join(c.base, fmt.Sprintf("guest%d", c.guests))}
	c.guest = m
	release()
	if err := c.admit(ctx, m); err != nil {
		return err
	}
	l := m.now()
	s, err := l.Members().Status(ctx)
	if err != nil {
		return err
	}
	id := s.Node.ID
	if err := await(ctx, "the guest is ready", func() bool { return l.Ready() == nil }); err != nil {
		return err
	}
	harness.Pause(ctx, d)
	err = await(ctx, "the guest is removed", func() bool {
		for _, m := range c.members {
			other := m.call()
			if other == nil {
				continue
			}
			call, cancel := context.WithTimeout(other.ctx, maxPatience)
			err := other.Members().Remove(call, id, true)
			cancel()
			other.calls.Done()
			if err == nil || errors.Is(err, state.ErrNotFound) {
				return true
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	defer c.exclusive()()
	m.take()
	c.guest = nil
	if err := l.end(); err != nil && !errors.Is(err, consensus.ErrRemoved) {
		return fmt.Errorf("the guest ended: %w", err)
	}
	return os.RemoveAll(m.folder)
}

// end stops a life whose state works again: Raft forgets the questions that it had
// put to a state machine which does not answer, and who asked would wait beyond
// the end of the run. A process that ends takes them with it.
func (m *member) end(l *life) error {
	m.store.release()
	harness.Pause(context.Background(), pollEvery)
	return l.end()
}

// admit starts a node that joins. A member whose process ends while it is asked
// looks like one that refuses, so the node asks again while faults go on.
func (c *cluster) admit(ctx context.Context, m *member) error {
	var last error
	err := await(ctx, "the guest joins", func() bool {
		defer c.exclusive()() // others start and end nodes between two attempts
		opening, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if last = c.start(opening, m); last == nil {
			return true
		}
		m.lives = 0
		last = errors.Join(last, os.RemoveAll(m.folder))
		return false
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// end stops a node that nobody calls any more.
func (l *life) end() error {
	l.hangUp()
	l.stop()
	return errors.Join(<-l.ended, l.Close(), l.host.close())
}

// close ends what still runs. All links are cut first, so that no node writes
// anything because another one left.
func (c *cluster) close() error {
	for i := range c.members {
		c.isolate(i, true)
	}
	var ends sync.WaitGroup
	errs := make([]error, len(c.members))
	for i, m := range c.members {
		if m == nil || m.life == nil {
			continue
		}
		ends.Go(func() {
			if err := m.end(m.life); !m.hurt() {
				errs[i] = err
			}
		})
	}
	if c.guest != nil && c.guest.life != nil { // only when something went wrong
		ends.Go(func() { _ = c.guest.life.end() })
	}
	ends.Wait()
	c.network.sim.Close()
	return errors.Join(errs...)
}
