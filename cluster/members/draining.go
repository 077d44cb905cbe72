package members

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits for measuring the progress of drains.
const (
	drainEvery  = 5 * time.Second // interval between two samples
	drainRecent = time.Minute     // time over which rates are measured
	drainLeast  = 10 * time.Second
	// maxDrainRead is the largest number of copies whose sizes one sample reads, which takes
	// about 50 ms. If a member has more, the next sample continues there.
	maxDrainRead = 10_000
	maxLeft      = 10 * 365 * 24 * time.Hour // longest remaining time that is reported
)

// Drain is the progress of the drain of a member, as measured by this node.
type Drain struct {
	Roots uint64 // number of roots that the member still holds
	// Bytes is the total size of these roots, or nil if it is not known yet. With more than
	// maxDrainRead roots it is an estimate from their mean size.
	Bytes *uint64
	Rate  *DrainRate // nil if this node has measured for less than drainLeast
}

// DrainRate is the rate at which content leaves a member, averaged over the last minute.
type DrainRate struct {
	RootsPerMinute float64
	BytesPerMinute float64       // also 0 while the sizes are not known
	Left           time.Duration // time until the member holds nothing; 0 if not known, because nothing has left it
}

// Left returns the estimated time until the member holds nothing. known is false if there is no
// estimate.
func (d *Drain) Left() (left time.Duration, known bool) {
	switch {
	case d.Roots == 0:
		return 0, true
	case d.Rate == nil || d.Rate.Left == 0:
		return 0, false
	}
	return d.Rate.Left, true
}

// drains has the newest samples of the members that are being drained.
type drains struct {
	mu sync.Mutex // guards of; it is held while copies are read, so that concurrent calls share a sample
	of map[state.NodeID]*drained
}

// drained has the samples of one member.
type drained struct {
	samples []drainSample // of the last minute, oldest first
	sizes   sizes
}

type drainSample struct {
	at    time.Time
	roots uint64
	bytes *uint64
	exact bool // bytes is exact and not an estimate
}

// sizes adds up the sizes of the roots on a member, some of them at each call.
type sizes struct {
	next  state.RootKey // root at which the next call continues; empty means the first
	read  uint64        // number of copies read in this round
	bytes uint64        // their size
	mean  *float64      // mean size in the last complete round; nil if there was none
}

// sampleDrains takes a sample of each member that is being drained, if the last one is at least
// drainEvery old.
func (m *Members) sampleDrains() error {
	if len(m.Drained()) == 0 {
		m.drains.keep(nil)
		return nil
	}
	view, release := m.opts.State.LocalView()
	defer release()
	all, err := drainedOf(view)
	if err != nil {
		return err
	}
	m.drains.keep(all)
	for id := range all {
		if _, err := m.drains.progress(view, id, m.opts.Now()); err != nil {
			return err
		}
	}
	return nil
}

// keep removes the samples of members that are no longer being drained.
func (d *drains) keep(all map[state.NodeID]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.of {
		if !all[id] {
			delete(d.of, id)
		}
	}
}

// progress returns the progress of the drain of a member. It takes a sample if the last one is at
// least drainEvery old.
func (d *drains) progress(view state.View, id state.NodeID, now time.Time) (*Drain, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[state.NodeID]*drained{}
	}
	of := d.of[id]
	if of == nil {
		of = &drained{}
		d.of[id] = of
	}
	roots, _, err := view.CopiesOn(id)
	if err != nil {
		return nil, fmt.Errorf("count copies: %w", err)
	}
	if n := len(of.samples); n == 0 || now.Sub(of.samples[n-1].at) >= drainEvery {
		s := drainSample{at: now, roots: roots}
		if s.bytes, s.exact, err = of.sizes.of(view, id, roots); err != nil {
			return nil, fmt.Errorf("read sizes of copies: %w", err)
		}
		of.samples = append(of.samples, s)
		old := func(s drainSample) bool { return now.Sub(s.at) > drainRecent }
		of.samples = slices.DeleteFunc(of.samples, old)
	}
	p := &Drain{Roots: roots, Bytes: of.samples[len(of.samples)-1].bytes}
	if roots == 0 {
		p.Bytes = new(uint64)
	}
	p.Rate = rateOf(of.samples)
	return p, nil
}

// of returns the total size of the roots on a member, and whether it is exact. It returns nil
// until the sizes of all copies were read once.
func (s *sizes) of(view state.View, id state.NodeID, roots uint64) (bytes *uint64, exact bool, err error) {
	from, read := s.next, 0
	if from == "" {
		s.read, s.bytes = 0, 0
	}
	s.next = ""
	err = view.WantedOn(id, from, func(k state.RootKey, phase state.Phase) (bool, error) {
		if read == maxDrainRead {
			s.next = k
			return false, nil
		}
		read++
		if phase != state.Held {
			return true, nil
		}
		root, err := view.Root(k)
		s.read, s.bytes = s.read+1, s.bytes+root.Size
		return err == nil, err
	})
	if err != nil {
		s.next = "" // the next call begins anew
		return nil, false, err
	}
	if s.next == "" {
		mean := float64(s.bytes) / float64(max(s.read, 1))
		s.mean = &mean
		if from == "" {
			sum := s.bytes
			return &sum, true, nil
		}
	}
	if s.mean == nil {
		return nil, false, nil
	}
	estimate := uint64(*s.mean * float64(roots))
	return &estimate, false, nil
}

// rateOf returns the rate between the oldest and the newest sample, or nil if there is less than
// drainLeast between them.
func rateOf(samples []drainSample) *DrainRate {
	first, last := samples[0], samples[len(samples)-1]
	passed := last.at.Sub(first.at)
	if passed < drainLeast {
		return nil
	}
	moved := float64(first.roots - min(last.roots, first.roots))
	r := &DrainRate{RootsPerMinute: moved / passed.Minutes()}
	switch {
	case last.bytes == nil:
	case first.exact && last.exact:
		r.BytesPerMinute = float64(*first.bytes-min(*last.bytes, *first.bytes)) / passed.Minutes()
	case last.roots > 0:
		r.BytesPerMinute = r.RootsPerMinute * float64(*last.bytes) / float64(last.roots)
	}
	switch {
	case r.BytesPerMinute > 0:
		r.Left = timeLeft(float64(*last.bytes), r.BytesPerMinute)
	case r.RootsPerMinute > 0:
		r.Left = timeLeft(float64(last.roots), r.RootsPerMinute)
	}
	return r
}

// timeLeft returns how long an amount takes at a rate. It returns 0, which means unknown, above
// maxLeft, because the result might overflow a Duration.
func timeLeft(amount, perMinute float64) time.Duration {
	if minutes := amount / perMinute; minutes <= maxLeft.Minutes() {
		return time.Duration(minutes * float64(time.Minute))
	}
	return 0
}
