// Package integrity finds damaged and lost blocks of this node and starts their repair, which
// fetches them from other nodes. It finds them by a slow scrub of all blocks, by a periodic check
// that the segment files exist, and at once when a read detects damage.
//
// Imports: std, prometheus, errgroup.
// Never:   storage, peer, consensus, the meaning of a reference.
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

// Pass is the result of one scrub of the store.
type Pass struct {
	Blocks, Bytes uint64 // verified and undamaged
	Damaged       uint64 // blocks that are damaged or missing
}

// Store is the part of the block store that this package uses. A reference is a named set of
// blocks in the store; it is complete when it was sealed. The store removes a damaged block; the
// references to it remain.
type Store interface {
	// Scrub verifies all blocks and reads at most bytesPerSecond. If resume is true, it continues
	// where the last interrupted pass has stopped.
	Scrub(ctx context.Context, bytesPerSecond int64, resume bool) (Pass, error)
	// ScrubCompleted returns when the last complete pass ended, or the zero time if there was
	// none.
	ScrubCompleted() time.Time
	// CheckSegments checks that the segment files exist, without reading them, and returns the
	// number of lost blocks.
	CheckSegments(ctx context.Context) (gone uint64, err error)
	// Lost receives a value after any part of the program found damage.
	Lost() <-chan struct{}
	// Missing returns the number of blocks that have references and are missing on this node.
	Missing() uint64
	// DiskBytes returns the number of bytes that a pass reads.
	DiskBytes() uint64
	// Damaged calls fn for each complete reference that lacks blocks, with their number, and for
	// each complete reference that may lack blocks (see Doubted).
	Damaged(ctx context.Context, fn func(reference string, blocks uint64) (more bool, err error)) error
	// Whole returns whether all blocks of a reference are on this node. It returns true if the
	// reference does not exist.
	Whole(ctx context.Context, reference string) (bool, error)
	// Doubted returns whether a complete reference has lost an unknown number of blocks. It
	// is true until the reference is sealed again or dropped.
	Doubted(reference string) (bool, error)
}

// Repairs starts the repair of damaged references.
type Repairs interface {
	// Repair requests that the missing blocks of a reference are fetched again, and returns at
	// once. When they have arrived, the node calls Scrubber.Seal.
	Repair(ctx context.Context, reference string) error
}

// Defaults of Options, and limits.
const (
	DefaultCycle    = 7 * 24 * time.Hour
	DefaultCheck    = 30 * time.Second
	DefaultPatience = 30 * time.Second
	// minBytesPerSecond is the minimum rate of the background scrub.
	minBytesPerSecond = 4 << 20
	// nowBytesPerSecond is the rate of a scrub that a caller waits for.
	nowBytesPerSecond = 512 << 20
	// minPause is the minimum time between two scans for damage.
	minPause = 500 * time.Millisecond
	// pauseFactor limits the share of time that scans take: the pause after a scan is pauseFactor
	// times the duration of the scan.
	pauseFactor = 4
	// waitPoll is the interval at which Scrub checks the progress of repairs.
	waitPoll = 100 * time.Millisecond
)

// ErrIncomplete means that a reference cannot be sealed because some of its blocks are missing,
// perhaps lost during the repair.
var ErrIncomplete = errors.New("integrity: blocks were lost while the rest came")

// Options are the dependencies of a Scrubber. Times that are zero become the defaults.
type Options struct {
	Store      Store
	Repairs    Repairs
	Cycle      time.Duration // time in which the background scrub verifies every block once
	Check      time.Duration // interval between two checks of the segment files
	Patience   time.Duration // time without progress of repairs after which Scrub returns
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Scrubber finds and repairs damaged blocks of one node.
type Scrubber struct {
	opts    Options
	metrics *metrics

	// mu guards damaged. It is not held during calls of other code.
	mu      sync.Mutex
	damaged map[string]struct{} // complete references that lack blocks

	scanning chan struct{} // a lock: has a value while a scan for damage runs, so that only one runs at a time
}

// New returns a Scrubber. It does nothing before Load and Run.
func New(o Options) (*Scrubber, error) {
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{{&o.Cycle, DefaultCycle}, {&o.Check, DefaultCheck}, {&o.Patience, DefaultPatience}} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	s := &Scrubber{opts: o, damaged: make(map[string]struct{}), scanning: make(chan struct{}, 1)}
	var err error
	s.metrics, err = newMetrics(o.Registerer, s)
	return s, err
}

// Load finds complete references that lack blocks, because an earlier process has not repaired
// them or because segment files were removed while no process ran. It must be called before
// Damaged.
func (s *Scrubber) Load(ctx context.Context) error {
	if _, err := s.opts.Store.CheckSegments(ctx); err != nil {
		return fmt.Errorf("integrity: check files: %w", err)
	}
	_, err := s.scan(ctx)
	return err
}

// Damaged returns whether a reference lacks blocks although it is complete according to the
// store.
func (s *Scrubber) Damaged(reference string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.damaged[reference]
	return ok
}

// Seal calls seal, which must mark a reference as complete in the store, and then removes the
// reference from the damaged ones. If blocks of the reference are missing, Seal returns
// ErrIncomplete and does not call seal.
func (s *Scrubber) Seal(ctx context.Context, reference string, seal func() error) error {
	whole, err := s.opts.Store.Whole(ctx, reference)
	if err != nil {
		return fmt.Errorf("integrity: before seal: %w", err)
	}
	if !whole {
		return ErrIncomplete
	}
	if err := seal(); err != nil {
		return err
	}
	s.forget(reference)
	return nil
}

func (s *Scrubber) forget(reference string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.damaged, reference)
}

// scan updates the set of damaged references from the store and returns it.
func (s *Scrubber) scan(ctx context.Context) (found []string, err error) {
	select {
	case s.scanning <- struct{}{}:
		defer func() { <-s.scanning }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	err = s.opts.Store.Damaged(ctx, func(reference string, _ uint64) (bool, error) {
		found = append(found, reference)
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("integrity: list damaged: %w", err)
	}
	s.mu.Lock()
	for _, reference := range found {
		s.damaged[reference] = struct{}{}
	}
	s.mu.Unlock()
	// A repair may have ended during the scan.
	if err := s.forgetWhole(ctx); err != nil {
		return nil, err
	}
	return s.list(), nil
}

func (s *Scrubber) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	references := make([]string, 0, len(s.damaged))
	for reference := range s.damaged {
		references = append(references, reference)
	}
	return references
}

// forgetWhole removes those references from the set that lack no blocks any more, because they
// were repaired or dropped.
func (s *Scrubber) forgetWhole(ctx context.Context) error {
	for _, reference := range s.list() {
		whole, err := s.opts.Store.Whole(ctx, reference)
		if err != nil {
			return fmt.Errorf("integrity: is it whole: %w", err)
		}
		doubted, err := s.opts.Store.Doubted(reference)
		if err != nil {
			return fmt.Errorf("integrity: is it in doubt: %w", err)
		}
		if whole && !doubted {
			s.forget(reference)
		}
	}
	return nil
}

// scanAndRepair scans for damaged references and starts the repair of each.
func (s *Scrubber) scanAndRepair(ctx context.Context) error {
	references, err := s.scan(ctx)
	if err != nil {
		return err
	}
	for _, reference := range references {
		if err := s.opts.Repairs.Repair(ctx, reference); err != nil {
			return fmt.Errorf("integrity: repair: %w", err)
		}
	}
	return nil
}

// Run scrubs and repairs in the background until ctx ends, then returns nil.
func (s *Scrubber) Run(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { s.watch(ctx); return nil })
	work.Go(func() error { s.walk(ctx); return nil })
	return work.Wait()
}

// watch checks the segment files every Check, and scans for damaged references whenever
// damage was found or remains.
func (s *Scrubber) watch(ctx context.Context) {
	check := time.NewTimer(s.opts.Check)
	defer check.Stop()
	err := s.scanAndRepair(ctx) // for the damage that Load found
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
		err = errors.Join(err, s.scanAndRepair(ctx))
		// The next read may find more damage soon: one scan serves several reads.
		if !backoff.Wait(ctx, max(minPause, pauseFactor*s.opts.Now().Sub(begin))) {
			return
		}
	}
}

// walk scrubs all blocks in an endless loop. It pauses for 50 % of Cycle, and reads fast enough
// to finish a pass in the other 50 %.
func (s *Scrubber) walk(ctx context.Context) {
	for {
		rest := s.opts.Cycle / 2
		if done := s.opts.Store.ScrubCompleted(); done.IsZero() {
			rest = 0
		} else {
			rest = min(rest, rest-s.opts.Now().Sub(done)) // if the clock was set back, do not wait longer
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
		if !backoff.Wait(ctx, minPause) { // also if the cycle is short
			return
		}
	}
}

// Report is the result of Scrub.
type Report struct {
	Blocks, Bytes uint64 // verified and undamaged
	Damaged       uint64 // blocks that were damaged or missing
	Repaired      uint64 // number of Damaged blocks that were repaired
}

// Scrub verifies every block now, starts the repair of damaged references, and waits while
// repairs make progress. It returns when all is repaired, or after Patience without progress.
func (s *Scrubber) Scrub(ctx context.Context) (Report, error) {
	pass, err := s.opts.Store.Scrub(ctx, nowBytesPerSecond, false)
	s.metrics.count(pass)
	r := Report{Blocks: pass.Blocks, Bytes: pass.Bytes, Damaged: pass.Damaged}
	if err != nil {
		return r, fmt.Errorf("integrity: %w", err)
	}
	s.metrics.passes.Inc()
	// Repairs of blocks that this pass or a read found may be in progress.
	r.Damaged = max(r.Damaged, s.opts.Store.Missing())
	if err := s.scanAndRepair(ctx); err != nil {
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
