// Package integrity finds damaged and lost blocks of this node and has them fetched
// again. It finds them by a slow scrub of all blocks, by checking that the files
// exist, and at once when a read detects damage.
//
// Imports: std, prometheus, errgroup.
// Never:   storage, peer, consensus, what an owner of blocks means.
package integrity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Pass is what one walk over the store has looked at.
type Pass struct {
	Blocks, Bytes uint64 // found good
	Damaged       uint64 // blocks found damaged or gone
}

// Store is the block store as far as damage is concerned. A block found damaged
// is not in it any more, but those who refer to it still do.
type Store interface {
	// Scrub verifies everything, reading at most so many bytes a second; resume
	// goes on where the last such pass was cut short.
	Scrub(ctx context.Context, bytesPerSecond int64, resume bool) (Pass, error)
	// ScrubCompleted is when the last whole pass ended; zero: never.
	ScrubCompleted() time.Time
	// CheckSegments looks whether the files are there, without reading them.
	CheckSegments(ctx context.Context) (gone uint64, err error)
	// Lost has a token after damage was found, by whomever.
	Lost() <-chan struct{}
	// Missing is how many blocks somebody refers to and are not here.
	Missing() uint64
	// DiskBytes is how much a pass reads.
	DiskBytes() uint64
	// Damaged calls fn for each complete owner that refers to missing blocks, and for
	// each that is in doubt.
	Damaged(ctx context.Context, fn func(owner string, blocks uint64) (more bool, err error)) error
	// Whole says whether all blocks of an owner are here; an owner that does not
	// exist lacks nothing.
	Whole(ctx context.Context, owner string) (bool, error)
	// Doubted says whether an owner was complete and has lost more than is known, until
	// it is sealed again or dropped.
	Doubted(owner string) (bool, error)
}

// Repairs has the blocks of an owner fetched again.
type Repairs interface {
	// Repair asks for it and returns before it is done, which a Seal tells.
	Repair(ctx context.Context, owner string) error
}

// Defaults of Options, and bounds.
const (
	DefaultCycle    = 7 * 24 * time.Hour
	DefaultCheck    = 30 * time.Second
	DefaultPatience = 30 * time.Second
	// minBytesPerSecond is the least rate of the walk in the background.
	minBytesPerSecond = 4 << 20
	// nowBytesPerSecond is the rate of a walk that somebody waits for.
	nowBytesPerSecond = 512 << 20
	// minPause is between two looks for damaged owners.
	minPause = 500 * time.Millisecond
	// pauseFactor spaces looks that take long: so many times as long as the last.
	pauseFactor = 4
	// waitPoll is how often a repair that is waited for is looked at.
	waitPoll = 100 * time.Millisecond
)

// ErrIncomplete means that an owner cannot be sealed: blocks were lost meanwhile.
var ErrIncomplete = errors.New("integrity: blocks were lost while the rest came")

// Options are what a Scrubber is made of. Zero times take the defaults.
type Options struct {
	Store      Store
	Repairs    Repairs
	Cycle      time.Duration // within which every block is verified once
	Check      time.Duration // between two looks at the files
	Patience   time.Duration // without progress of repairs, after which Scrub returns
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Scrubber looks after the blocks of one node.
type Scrubber struct {
	opts    Options
	metrics *metrics

	// mu guards damaged. It is never held while calling out.
	mu      sync.Mutex
	damaged map[string]struct{} // complete owners that lack blocks; Store.Damaged bounds it

	looking chan struct{} // one look for damaged owners at a time
}

// New returns a Scrubber, which does nothing before Load and Run.
func New(o Options) (*Scrubber, error) {
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{{&o.Cycle, DefaultCycle}, {&o.Check, DefaultCheck}, {&o.Patience, DefaultPatience}} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	s := &Scrubber{opts: o, damaged: make(map[string]struct{}), looking: make(chan struct{}, 1)}
	var err error
	s.metrics, err = newMetrics(o.Registerer, s)
	return s, err
}

// Load finds what an earlier process left damaged, and files that went while
// none ran. Before it, nothing may ask for Damaged.
func (s *Scrubber) Load(ctx context.Context) error {
	if _, err := s.opts.Store.CheckSegments(ctx); err != nil {
		return fmt.Errorf("integrity: check files: %w", err)
	}
	_, err := s.look(ctx)
	return err
}

// Damaged says whether owner, complete as it may be called, lacks blocks.
func (s *Scrubber) Damaged(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.damaged[owner]
	return ok
}

// Seal has an owner declared complete by seal, after which it is whole again:
// ErrIncomplete, and seal is not called, if blocks of it were lost meanwhile.
func (s *Scrubber) Seal(ctx context.Context, owner string, seal func() error) error {
	whole, err := s.opts.Store.Whole(ctx, owner)
	if err != nil {
		return fmt.Errorf("integrity: before seal: %w", err)
	}
	if !whole {
		return ErrIncomplete
	}
	if err := seal(); err != nil {
		return err
	}
	s.forget(owner)
	return nil
}

func (s *Scrubber) forget(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.damaged, owner)
}

// look brings the set of damaged owners up to date and returns it.
func (s *Scrubber) look(ctx context.Context) (found []string, err error) {
	select {
	case s.looking <- struct{}{}:
		defer func() { <-s.looking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	err = s.opts.Store.Damaged(ctx, func(owner string, _ uint64) (bool, error) {
		found = append(found, owner)
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("integrity: list damaged: %w", err)
	}
	s.mu.Lock()
	for _, owner := range found {
		s.damaged[owner] = struct{}{}
	}
	s.mu.Unlock()
	// A repair may have ended after the list was begun.
	if err := s.forgetWhole(ctx); err != nil {
		return nil, err
	}
	return s.list(), nil
}

func (s *Scrubber) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	owners := make([]string, 0, len(s.damaged))
	for owner := range s.damaged {
		owners = append(owners, owner)
	}
	return owners
}

// forgetWhole takes owners that lack nothing any more out of the set: repaired,
// or dropped.
func (s *Scrubber) forgetWhole(ctx context.Context) error {
	for _, owner := range s.list() {
		whole, err := s.opts.Store.Whole(ctx, owner)
		if err != nil {
			return fmt.Errorf("integrity: is it whole: %w", err)
		}
		doubted, err := s.opts.Store.Doubted(owner)
		if err != nil {
			return fmt.Errorf("integrity: is it in doubt: %w", err)
		}
		if whole && !doubted {
			s.forget(owner)
		}
	}
	return nil
}

// lookAndRepair has everything that is damaged fetched again.
func (s *Scrubber) lookAndRepair(ctx context.Context) error {
	owners, err := s.look(ctx)
	if err != nil {
		return err
	}
	for _, owner := range owners {
		if err := s.opts.Repairs.Repair(ctx, owner); err != nil {
			return fmt.Errorf("integrity: repair: %w", err)
		}
	}
	return nil
}

// Run verifies in the background until ctx ends, and then returns nil.
func (s *Scrubber) Run(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { s.watch(ctx); return nil })
	work.Go(func() error { s.walk(ctx); return nil })
	return work.Wait()
}

// watch looks at the files now and then, and for damaged owners whenever damage
// was found or is left.
func (s *Scrubber) watch(ctx context.Context) {
	check := time.NewTimer(s.opts.Check)
	defer check.Stop()
	err := s.lookAndRepair(ctx) // what Load found
	for {
		if err != nil && ctx.Err() == nil {
			s.opts.Logger.ErrorContext(ctx, "cannot look for damaged blocks", "err", err)
		}
		err = nil
		select {
		case <-ctx.Done():
			return
		case <-check.C:
			_, err = s.opts.Store.CheckSegments(ctx)
			check.Reset(s.opts.Check)
			if s.opts.Store.Missing() == 0 && len(s.list()) == 0 {
				continue
			}
		case <-s.opts.Store.Lost():
		}
		begin := s.opts.Now()
		err = errors.Join(err, s.lookAndRepair(ctx))
		// The next loss may come with the next read: one look serves many.
		if !backoff.Wait(ctx, max(minPause, pauseFactor*s.opts.Now().Sub(begin))) {
			return
		}
	}
}

// walk verifies everything, again and again: it rests for half a cycle and is
// fast enough to be through in the other half.
func (s *Scrubber) walk(ctx context.Context) {
	for {
		rest := s.opts.Cycle / 2
		if done := s.opts.Store.ScrubCompleted(); done.IsZero() {
			rest = 0
		} else {
			rest = min(rest, rest-s.opts.Now().Sub(done)) // a clock that was set back is no reason to wait longer
		}
		if rest > 0 && !backoff.Wait(ctx, rest) {
			return
		}
		speed := max(minBytesPerSecond, int64(float64(s.opts.Store.DiskBytes())/(s.opts.Cycle/2).Seconds()))
		pass, err := s.opts.Store.Scrub(ctx, speed, true)
		s.metrics.count(pass)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.opts.Logger.ErrorContext(ctx, "scrub failed before its end", "err", err)
			if !backoff.Wait(ctx, s.opts.Check) {
				return
			}
			continue
		}
		s.metrics.passes.Inc()
		s.opts.Logger.InfoContext(ctx, "scrub verified all blocks", "blocks", pass.Blocks, "bytes", pass.Bytes, "damaged", pass.Damaged)
		if !backoff.Wait(ctx, minPause) { // however short the cycle
			return
		}
	}
}

// Report is what came of a Scrub.
type Report struct {
	Blocks, Bytes uint64 // found good
	Damaged       uint64 // blocks that were damaged or gone
	Repaired      uint64 // of them, here again
}

// Scrub verifies every block now, has the damaged ones fetched again, and waits
// for that as long as it makes progress.
func (s *Scrubber) Scrub(ctx context.Context) (Report, error) {
	pass, err := s.opts.Store.Scrub(ctx, nowBytesPerSecond, false)
	s.metrics.count(pass)
	r := Report{Blocks: pass.Blocks, Bytes: pass.Bytes, Damaged: pass.Damaged}
	if err != nil {
		return r, fmt.Errorf("integrity: %w", err)
	}
	s.metrics.passes.Inc()
	// Others may be repairing already what this pass, or a read, has found.
	r.Damaged = max(r.Damaged, s.opts.Store.Missing())
	if err := s.lookAndRepair(ctx); err != nil {
		return r, err
	}
	left, since := s.opts.Store.Missing(), s.opts.Now()
	for len(s.list()) > 0 && s.opts.Now().Sub(since) < s.opts.Patience {
		if !backoff.Wait(ctx, waitPoll) {
			return r, ctx.Err()
		}
		if now := s.opts.Store.Missing(); now != left {
			left, since = now, s.opts.Now()
			if err := s.forgetWhole(ctx); err != nil {
				return r, err
			}
		}
	}
	r.Repaired = r.Damaged - min(r.Damaged, s.opts.Store.Missing())
	return r, nil
}
