package dag

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"golang.org/x/sync/semaphore"
)

// Bounds of one fetch.
const (
	// jobBlocks are asked for together, by fetchJobs jobs at the same time:
	// 256 blocks on their way.
	jobBlocks = 32
	fetchJobs = 8
	// maxOutstanding bounds the blocks asked for and not yet stored.
	maxOutstanding = 2 * jobBlocks * fetchJobs
	// linkCost is what a link that was found takes beside the block's own bytes.
	linkCost = 64
	// minBuffer is the least size of a Buffer, with which every block fits.
	minBuffer = 4*MaxBlock + linkCost*MaxLinks
	// putBytes and putBlocks bound what one Put of the store takes.
	putBytes  = 8 << 20
	putBlocks = 256
	// putters store at the same time: while one waits for the disk, the other
	// gathers.
	putters = 2
	// retryEvery is the pause before sources that failed are asked again.
	retryEvery = 3 * time.Second
	// maxStrikes is how often in a row a source other than the last may deliver
	// nothing before it is asked only every strikePeriod-th time.
	maxStrikes   = 3
	strikePeriod = 16
)

// Store is the local block store, as one owner sees it.
type Store interface {
	Getter
	// Adopt adds owner's references to the blocks that are here already and
	// returns the others.
	Adopt(ctx context.Context, owner string, cids []cid.Cid) (missing []cid.Cid, err error)
	// Put stores blocks with owner's reference; they are durable when it
	// returns.
	Put(ctx context.Context, owner string, blks []blocks.Block) error
}

// sizer is what a Store has as well when it knows a block's size without
// reading it.
type sizer interface {
	GetSize(ctx context.Context, c cid.Cid) (int, error)
}

// taker is what a Store has as well when it takes over many blocks in one call.
type taker interface {
	// TakeOver is Adopt, and tells how many bytes the blocks have that are here.
	TakeOver(ctx context.Context, owner string, cids []cid.Cid) (bytes uint64, missing []cid.Cid, err error)
}

// Source is where blocks that are not here may come from.
type Source interface {
	// Name says in a few words who it is.
	Name() string
	// Blocks hands blocks to fn as they come, never two at once, and returns
	// the CIDs that it did not. With a nil error it does not have them; with an
	// error it may have them later. It returns when ctx ends.
	Blocks(ctx context.Context, cids []cid.Cid, fn func(blocks.Block) error) (missing []cid.Cid, err error)
}

// checker is a Source that has compared every block that it hands over with its
// hash. The blocks of other sources are checked here.
type checker interface{ ChecksHashes() bool }

// checked is a block that was compared with its hash on its way here. The store
// is told so by the method, for hashing takes as long as receiving.
type checked struct{ blocks.Block }

// HashChecked says that the bytes match the CID.
func (checked) HashChecked() bool { return true }

// renewer is a Source that can begin anew when nothing comes any more.
type renewer interface{ Renew() }

// explainer is a Source that can say which addresses it does not reach.
type explainer interface{ OriginErrors() []string }

// Progress is how far a fetch has come.
type Progress struct {
	Bytes  uint64 // stored, or found here
	Blocks uint64
	Found  uint64 // blocks known of so far
}

// Buffer bounds the bytes that wait for the store, of all fetches that share it.
// What waits is written without waiting for more, so sharing it cannot lock.
// It also bounds what those fetches remember of the nodes that they have seen;
// one that finds no room for more fails with ErrMemory. Taking over what is here already
// has room of its own: it is over soon, and fetches may go on for hours.
type Buffer struct {
	free *semaphore.Weighted
	seen *atomic.Int64
	here *atomic.Int64
}

// NewBuffer returns a buffer of so many bytes, at least four times MaxBlock.
func NewBuffer(bytes int64) *Buffer {
	return &Buffer{free: semaphore.NewWeighted(max(bytes, minBuffer)), seen: newSeenBytes(), here: newSeenBytes()}
}

// FetchRequest names the DAG to fetch, the reference that keeps it, and the sources.
type FetchRequest struct {
	Root    cid.Cid
	Owner   string
	Store   Store
	Sources []Source // asked in this order for what the ones before lack
	Limits  Limits
	// Here says that most of the DAG, or all of it, is in the store already. A Store that
	// knows TakeOver takes it over in large steps.
	Here bool
	// Share is this node's among those that fetch the same DAG now.
	Share Share
	// Buffer is shared with other fetches; nil is one of DefaultBuffer bytes.
	Buffer *Buffer
	// Progress is called from one goroutine after something was stored, or held
	// back because the DAG may be small; nil is fine. It must not block.
	Progress func(Progress)
}

// Fetch stores the complete DAG of req.Root, with req.Owner as a reference to every block,
// and returns when all blocks are durable. It verifies the hash of each block. It fails
// with a *FetchError or with ctx's error. Blocks stored before a failure keep the reference,
// so the caller can resume the fetch or drop the reference. If the store has the method
// Complete, Fetch holds a small DAG in memory and stores it in one call at the end.
func Fetch(ctx context.Context, req FetchRequest) (Result, error) {
	limits := req.Limits.withDefaults()
	scope, cancel := context.WithCancelCause(ctx)
	if req.Buffer == nil {
		req.Buffer = NewBuffer(DefaultBuffer)
	}
	if t, ok := req.Store.(taker); ok && req.Here {
		if got, all := claim(ctx, &req, t, limits); all {
			cancel(nil)
			return got, nil
		}
	}
	f := &fetch{
		req:    req,
		limits: limits,
		began:  time.Now(),
		ctx:    scope,
		cancel: cancel,
		front:  newFrontier(limits, req.Buffer.seen),
		puts:   make(chan got, putBlocks),
		events: make(chan event, fetchJobs+putters),
		faults: make([]strikes, len(req.Sources)),
	}
	f.front.share = req.Share
	f.whole, _ = req.Store.(completer)
	f.attempt = newAttempt(scope)
	err := f.run()
	if err == nil {
		err = f.complete()
	}
	cancel(err)
	f.work.Wait()
	f.front.end()
	if err != nil {
		err = f.keep(ctx, err)
	}
	f.attempt.end()
	req.Buffer.free.Release(f.buffered.Load()) // what an end left unwritten
	if err != nil {
		return f.result, f.explain(ctx, err)
	}
	return f.result, nil
}

// fetch is one Fetch. run is the only one that touches front, result and the
// counts below it; jobs and putters tell it what happened by events.
type fetch struct {
	// Set once.
	req    FetchRequest
	limits Limits
	began  time.Time
	ctx    context.Context // ends with Fetch
	cancel context.CancelCauseFunc
	puts   chan got
	events chan event
	work   sync.WaitGroup
	write  sync.Once // starts the putters
	whole  completer // nil: the store is none
	small  small

	buffered atomic.Int64 // bytes of req.Buffer that this fetch has taken

	// Only run's.
	front       *frontier
	result      Result
	jobs        int
	outstanding int // blocks given to jobs and neither stored nor found here

	pulled      atomic.Uint64 // blocks from the sources
	pulledBytes atomic.Uint64
	planned     atomic.Uint64 // bytes found or pulled, for MaxBytes

	// mu guards what follows.
	mu      sync.Mutex
	attempt *attempt
	faults  []strikes // per source
	lack    cid.Cid   // a block that a job was still waiting for
	vain    int       // how often in a row others were followed for nothing
}

// got is a block on its way into the store.
type got struct {
	item  item
	block blocks.Block
	links []cid.Cid
	cost  int64 // taken of req.Buffer
}

// event is what a job or a putter tells run.
type event struct {
	ended bool   // a job is over
	have  []have // blocks that are in the store now
	err   error  // ends the fetch
}

type have struct {
	item   item
	links  []cid.Cid
	bytes  int  // that count: see Result
	inline bool // inside its CID, so not a block of the store
}

// attempt is the time between two renewals of the sources.
type attempt struct {
	ctx context.Context
	end context.CancelFunc
}

func newAttempt(ctx context.Context) *attempt {
	a := &attempt{}
	a.ctx, a.end = context.WithCancel(ctx)
	return a
}

func (f *fetch) run() error {
	total := time.NewTimer(f.limits.Total)
	defer total.Stop()
	idle := time.NewTimer(f.limits.Idle)
	defer idle.Stop()
	pause := backoff.New(f.limits.Renew, f.limits.Total)
	renew := time.NewTimer(pause.NextBackOff())
	defer renew.Stop()

	root := item{cid: f.req.Root}
	if _, err := f.front.first(root.cid); err != nil {
		return err
	}
	if err := f.front.admit(root.cid); err != nil {
		return err
	}
	batch := []item{root}
	for {
		var err error
		if batch, err = f.begin(batch); err != nil {
			return err
		}
		if f.outstanding == 0 && len(batch) == 0 && len(f.front.frames) == 0 && f.jobs == 0 {
			return nil
		}
		select {
		case <-f.ctx.Done():
			return context.Cause(f.ctx)
		case <-total.C:
			return &FetchError{Kind: ErrTimeout, After: f.limits.Total}
		case <-idle.C:
			return f.idled()
		case <-renew.C:
			f.renew()
			renew.Reset(pause.NextBackOff())
		case e := <-f.events:
			progress, err := f.handle(e)
			if err != nil {
				return err
			}
			if progress {
				idle.Reset(f.limits.Idle)
				pause.Reset()
				renew.Reset(pause.NextBackOff())
			}
		}
	}
}

// begin starts jobs as long as there is something to visit and room.
func (f *fetch) begin(batch []item) ([]item, error) {
	for {
		for len(batch) < jobBlocks {
			it, ok, err := f.front.pop(f.reload)
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			batch = append(batch, it)
		}
		if len(batch) == 0 || f.jobs == fetchJobs || f.outstanding+len(batch) > maxOutstanding {
			return batch, nil
		}
		f.jobs++
		f.outstanding += len(batch)
		work := batch
		batch = nil
		f.work.Go(func() {
			err := f.job(work)
			f.tell(event{ended: true, err: err})
		})
	}
}

// handle takes in what happened and tells whether it was progress.
func (f *fetch) handle(e event) (progress bool, err error) {
	if e.ended {
		f.jobs--
	}
	if e.err != nil {
		return false, e.err
	}
	for _, h := range e.have {
		f.outstanding--
		if !h.inline {
			f.result.Blocks++
		}
		f.result.Bytes += uint64(h.bytes)
		if err := f.front.push(h.item, h.links); err != nil {
			return false, err
		}
	}
	if len(e.have) > 0 && f.req.Progress != nil {
		f.req.Progress(Progress{Bytes: f.result.Bytes, Blocks: f.result.Blocks, Found: f.front.found})
	}
	return len(e.have) > 0, nil
}

// tell hands an event to run, unless it is gone.
func (f *fetch) tell(e event) {
	select {
	case f.events <- e:
	case <-f.ctx.Done():
	}
}

// idled is the error when nothing came for too long.
func (f *fetch) idled() error {
	e := &FetchError{Kind: ErrStalled, After: f.limits.Idle}
	if f.pulled.Load() == 0 {
		e.Kind = ErrNotFound
	}
	return e
}

// renew ends the requests that are under way and lets the sources begin anew.
// bitswap loses a want now and then; a new session asks for it again.
func (f *fetch) renew() {
	next := newAttempt(f.ctx)
	f.mu.Lock()
	last := f.attempt
	f.attempt = next
	f.mu.Unlock()
	for _, s := range f.req.Sources {
		if r, ok := s.(renewer); ok {
			r.Renew()
		}
	}
	last.end()
}

// explain adds to an error how far the fetch came and what the sources say.
func (f *fetch) explain(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("dag: fetch: %w", cause)
	}
	var e *FetchError
	if !errors.As(err, &e) {
		e = &FetchError{Kind: classify(err), Err: err}
	}
	e.Blocks, e.Bytes = f.pulled.Load(), f.pulledBytes.Load()
	if !e.Cid.Defined() {
		e.Cid = f.lack
	}
	if errors.Is(e.Kind, ErrNotFound) || errors.Is(e.Kind, ErrStalled) {
		for _, s := range f.req.Sources {
			if x, ok := s.(explainer); ok {
				e.Notes = append(e.Notes, x.OriginErrors()...)
			}
		}
	}
	return e
}

// reload reads the links of a node that is in the store, or held back from it.
func (f *fetch) reload(c cid.Cid) ([]cid.Cid, error) {
	b, inlined, err := inline(c)
	if !inlined {
		if b = f.small.find(c); b == nil {
			b, err = get(f.ctx, f.req.Store, c)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrStore, c, err)
	}
	return Links(b)
}
