package integrity

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// disk stands in for the block store, and for who repairs it.
type disk struct {
	mu        sync.Mutex
	rotten    map[string]uint64 // damage that nobody has met yet, by reference
	missing   map[string]uint64 // damage that is known
	doubted   map[string]uint64 // seals that were taken back
	gone      map[string]uint64 // files that went
	completed time.Time
	passes    []pass
	repairs   []string
	repair    func(reference string) // what a Repair leads to; nil: nothing
	err       error                  // of the next Scrub
	lost      chan struct{}
}

type pass struct {
	at     time.Time
	speed  int64
	resume bool
}

func newDisk() *disk {
	return &disk{rotten: map[string]uint64{}, missing: map[string]uint64{}, gone: map[string]uint64{}, lost: make(chan struct{}, 1)}
}

func (d *disk) meet(from map[string]uint64) (n uint64) {
	for reference, blocks := range from {
		d.missing[reference] += blocks
		n += blocks
	}
	clear(from)
	if n > 0 {
		select {
		case d.lost <- struct{}{}:
		default:
		}
	}
	return n
}

func (d *disk) Scrub(_ context.Context, speed int64, resume bool) (Pass, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.passes = append(d.passes, pass{time.Now(), speed, resume})
	if err := d.err; err != nil {
		d.err = nil
		return Pass{}, err
	}
	d.completed = time.Now()
	return Pass{Blocks: 10, Bytes: 1000, Damaged: d.meet(d.rotten)}, nil
}

func (d *disk) ScrubCompleted() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.completed
}

func (d *disk) CheckSegments(context.Context) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.meet(d.gone), nil
}

func (d *disk) Lost() <-chan struct{} { return d.lost }

func (d *disk) Missing() (n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, blocks := range d.missing {
		n += blocks
	}
	return n
}

func (d *disk) DiskBytes() uint64 { return 100 << 40 }

func (d *disk) Damaged(_ context.Context, fn func(string, uint64) (bool, error)) error {
	d.mu.Lock()
	all := maps.Clone(d.missing)
	maps.Copy(all, d.doubted)
	d.mu.Unlock()
	for reference, blocks := range all {
		if more, err := fn(reference, blocks); !more || err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) Whole(_ context.Context, reference string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.missing[reference] == 0, nil
}

func (d *disk) Doubted(reference string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, doubted := d.doubted[reference]
	return doubted, nil
}

func (d *disk) Repair(_ context.Context, reference string) error {
	d.mu.Lock()
	d.repairs = append(d.repairs, reference)
	then := d.repair
	d.mu.Unlock()
	if then != nil {
		then(reference)
	}
	return nil
}

func (d *disk) mend(reference string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.missing, reference)
}

func (d *disk) asked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.repairs)
}

func (d *disk) seen() []pass {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.passes)
}

// bubble runs a test with a Scrubber that runs, in virtual time.
func bubble(t *testing.T, fn func(t *testing.T, d *disk, s *Scrubber)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		d.completed = time.Now()
		s, err := New(Options{Store: d, Repairs: d, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		fn(t, d, s)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func pause(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// The scrubber requests the repair of a reference at once when a read meets damage in it, and does not seal the
// reference while a block is missing.
func TestDamageThatAReadMeetsIsRepairedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, d *disk, s *Scrubber) {
		pause(time.Second)
		d.mu.Lock()
		d.meet(map[string]uint64{"root/a": 2})
		d.mu.Unlock()
		pause(time.Second)
		if d.asked() != 1 || !s.Damaged("root/a") {
			t.Errorf("asked %d times, damaged %v", d.asked(), s.Damaged("root/a"))
		}
		sealed := func() error { return nil }
		if err := s.Seal(context.Background(), "root/a", sealed); !errors.Is(err, ErrIncomplete) {
			t.Errorf("sealed with a hole: %v", err)
		}
		d.mend("root/a")
		if err := s.Seal(context.Background(), "root/a", sealed); err != nil || s.Damaged("root/a") {
			t.Errorf("whole again: %v, damaged %v", err, s.Damaged("root/a"))
		}
	})
}

// A reference in doubt counts as damaged, and its repair is requested again, until it is sealed. So it is not given
// up as one that was never complete, although nothing that is known of it is missing.
func TestWhatIsInDoubtIsDamagedUntilItIsSealed(t *testing.T) {
	bubble(t, func(t *testing.T, d *disk, s *Scrubber) {
		d.mu.Lock()
		d.doubted = map[string]uint64{"root/a": 3}
		d.mu.Unlock()
		if err := s.Load(context.Background()); err != nil || !s.Damaged("root/a") {
			t.Fatalf("not damaged: %v", err)
		}
		pause(2*DefaultCheck + time.Second)
		if d.asked() < 2 || !s.Damaged("root/a") {
			t.Errorf("asked %d times, damaged %v", d.asked(), s.Damaged("root/a"))
		}
		full := errors.New("no space left on device")
		if err := s.Seal(context.Background(), "root/a", func() error { return full }); !errors.Is(err, full) || !s.Damaged("root/a") {
			t.Errorf("the seal failed: %v, damaged %v", err, s.Damaged("root/a"))
		}
		err := s.Seal(context.Background(), "root/a", func() error {
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.doubted, "root/a")
			return nil
		})
		if err != nil || s.Damaged("root/a") {
			t.Errorf("sealed again: %v, damaged %v", err, s.Damaged("root/a"))
		}
	})
}

// A lost file of the block store is found within one check, and its repair is requested as long as it lasts.
func TestFilesThatGoAreFoundWithinACheck(t *testing.T) {
	bubble(t, func(t *testing.T, d *disk, s *Scrubber) {
		d.mu.Lock()
		d.gone["root/a"] = 7
		d.mu.Unlock()
		pause(DefaultCheck + time.Second)
		if d.asked() == 0 || !s.Damaged("root/a") {
			t.Errorf("asked %d times, damaged %v", d.asked(), s.Damaged("root/a"))
		}
		before := d.asked()
		pause(2 * DefaultCheck) // and asked for again as long as it lasts
		if d.asked() == before {
			t.Error("asked once only")
		}
	})
}

// Load knows the references that an earlier process left damaged.
func TestLoadKnowsWhatAnEarlierProcessLeft(t *testing.T) {
	d := newDisk()
	d.missing["root/a"], d.gone["root/b"] = 1, 1
	s, err := New(Options{Store: d, Repairs: d, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Load(t.Context()); err != nil || !s.Damaged("root/a") || !s.Damaged("root/b") || s.Damaged("root/c") {
		t.Errorf("%v, %v", err, s.damaged)
	}
}

// Every block is verified within a cycle, also if a pass fails: a pass takes at most half of it and the next begins
// when the other half is over.
func TestEverythingIsVerifiedWithinACycle(t *testing.T) {
	bubble(t, func(t *testing.T, d *disk, _ *Scrubber) {
		begin := time.Now()
		pause(DefaultCycle/2 - time.Second)
		if got := d.seen(); len(got) != 0 {
			t.Fatalf("passes %v", got)
		}
		d.mu.Lock()
		d.err = errors.New("the disk has a cold")
		d.mu.Unlock()
		pause(time.Minute)
		got := d.seen()
		if len(got) != 2 || got[1].at.Sub(begin) > DefaultCycle/2+time.Minute {
			t.Fatalf("passes %v", got)
		}
		if p := got[1]; !p.resume || float64(p.speed)*(DefaultCycle/2).Seconds() < 100<<39 {
			t.Errorf("%+v is too slow for the cycle", p)
		}
		pause(DefaultCycle)
		if got := d.seen(); len(got) != 4 {
			t.Errorf("passes %v", got)
		}
	})
}

// Scrub waits for repairs as long as they go on, ends after DefaultPatience without one, and reports the damaged and
// the repaired blocks.
func TestScrubNowWaitsForRepairsAsLongAsTheyGoOn(t *testing.T) {
	for _, tc := range []struct {
		name     string
		each     time.Duration // one repair takes; 0: none is made
		repaired uint64
		atMost   time.Duration
	}{
		{"at once", time.Millisecond, 6, time.Second},
		{"slowly", DefaultPatience - time.Second, 6, 3 * DefaultPatience},
		{"never", 0, 0, DefaultPatience + time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *disk, s *Scrubber) {
				begin := time.Now()
				d.mu.Lock()
				d.rotten = map[string]uint64{"root/a": 1, "root/b": 2, "root/c": 3}
				d.mu.Unlock()
				if tc.each > 0 {
					go func() {
						for _, reference := range []string{"root/b", "root/a", "root/c"} {
							<-time.After(tc.each)
							d.mend(reference)
						}
					}()
				}
				r, err := s.Scrub(context.Background())
				if want := (Report{Blocks: 10, Bytes: 1000, Damaged: 6, Repaired: tc.repaired}); err != nil || r != want {
					t.Errorf("%+v, %v, want %+v", r, err, want)
				}
				if took := time.Since(begin); took > tc.atMost {
					t.Errorf("took %v", took)
				}
				pause(3 * DefaultPatience)
			})
		})
	}
}
