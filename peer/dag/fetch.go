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
	// jobBlocks is how many blocks one job requests, and fetchJobs how many jobs run at the
	// same time: 256 blocks in flight.
	jobBlocks = 32
	fetchJobs = 8
	// maxOutstanding is the largest number of blocks that are requested and not stored yet.
	maxOutstanding = 2 * jobBlocks * fetchJobs
	// linkCost is the memory for one link of a block, in bytes, in addition to the block.
	linkCost = 64
	// minBuffer is the minimum size of a Buffer, in bytes. Every block fits in it.
	minBuffer = 4*MaxBlock + linkCost*MaxLinks
	// putBytes and putBlocks bound one Put of the store.
	putBytes  = 8 << 20
	putBlocks = 256
	// putters is the number of goroutines that store. While one waits for the disk, the
	// other collects blocks.
	putters = 2
	// retryEvery is the pause before failed sources are asked again.
	retryEvery = 3 * time.Second
	// maxStrikes is how often in a row a source may deliver nothing. After that it is asked only
	// every strikePeriod-th time. The last source in the list is always asked.
	maxStrikes   = 3
	strikePeriod = 16
)

// Store is the local block store.
type Store interface {
	Getter
	// Adopt adds those blocks that are in the store to the reference, and returns the CIDs of the
	// other blocks.
	Adopt(ctx context.Context, reference string, cids []cid.Cid) (missing []cid.Cid, err error)
	// Put stores blocks with the reference. They are durable when it returns.
	Put(ctx context.Context, reference string, blks []blocks.Block) error
}

// sizer is an optional method of a Store that returns the size of a block without reading
// it.
type sizer interface {
	GetSize(ctx context.Context, c cid.Cid) (int, error)
}

// taker is an optional method of a Store that adopts many blocks in one call.
type taker interface {
	// TakeOver does the same as Adopt, and also returns the size in bytes of the blocks in the
	// store.
	TakeOver(ctx context.Context, reference string, cids []cid.Cid) (bytes uint64, missing []cid.Cid, err error)
}

// Source provides blocks that are not in the store.
type Source interface {
	// Name returns a short name of the source for messages.
	Name() string
	// Blocks passes blocks to fn as they arrive, never two at once, and returns the CIDs
	// for which it did not. If the error is nil, the source does not have them; otherwise
	// it may have them later. It returns when ctx ends.
	Blocks(ctx context.Context, cids []cid.Cid, fn func(blocks.Block) error) (missing []cid.Cid, err error)
}

// checker is an optional method of a Source. It returns true if the source has verified the
// hash of every block. Fetch verifies the blocks of other sources.
type checker interface{ ChecksHashes() bool }

// checked is a block whose hash was verified. The store does not verify it again, because
// hashing takes as long as receiving.
type checked struct{ blocks.Block }

// HashChecked returns true: the bytes match the CID.
func (checked) HashChecked() bool { return true }

// renewer is an optional method of a Source that sends its requests again.
type renewer interface{ Renew() }

// explainer is an optional method of a Source that lists the addresses it cannot reach.
type explainer interface{ OriginErrors() []string }

// Progress is the progress of a fetch.
type Progress struct {
	Bytes  uint64 // bytes stored now or already in the store
	Blocks uint64
	Found  uint64 // blocks found so far
}

// Buffer limits the bytes of received blocks that wait for the store, over all fetches that share
// the Buffer. Storing goroutines write all waiting blocks, so sharing a Buffer cannot cause a
// deadlock. A Buffer also limits the memory for the CIDs that these fetches have visited; a fetch
// that needs more memory fails with ErrMemory. Taking over blocks that the store already has uses a
// separate limit, because it is short, and fetches may take hours.
type Buffer struct {
	free *semaphore.Weighted // bytes for blocks that wait for the store
	seen *atomic.Int64       // free bytes of memory for the CIDs that fetches have visited
	here *atomic.Int64       // the same for CIDs that are visited while blocks are taken over
}

// NewBuffer returns a buffer of this many bytes, at least minBuffer.
func NewBuffer(bytes int64) *Buffer {
	return &Buffer{free: semaphore.NewWeighted(max(bytes, minBuffer)), seen: newSeenBytes(), here: newSeenBytes()}
}

// FetchRequest describes a fetch: the DAG, the name of the reference that will include its blocks,
// the store and the sources.
type FetchRequest struct {
	Root      cid.Cid
	Reference string
	Store     Store
	Sources   []Source // asked in this order; each source is asked for the blocks that the sources before it lack
	Limits    Limits
	// Here says that most or all blocks of the DAG are probably in the store already. If the Store
	// has the method TakeOver, Fetch then adds the reference to these blocks in large steps.
	Here bool
	// Share says which part of the DAG this node fetches first, if several nodes fetch the same DAG
	// now.
	Share Share
	// Buffer may be shared with other fetches. Nil: a buffer of DefaultBuffer bytes for
	// this one.
	Buffer *Buffer
	// Progress is called from one goroutine after blocks were stored, or kept in memory
	// because the DAG may be small. It may be nil. It must not block.
	Progress func(Progress)
}

// Fetch stores the complete DAG of req.Root and adds every block to the reference req.Reference.
// When it returns, all blocks are durable. It verifies the hash of each block. If it fails, the
// error is a *FetchError or that of ctx. Blocks that were stored before a failure stay in the
// reference, so the caller can continue the fetch later or drop the reference. If the store has the
// method Complete, Fetch keeps a small DAG in memory and stores it by one call at the end.
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
	req.Buffer.free.Release(f.buffered.Load()) // for blocks that were not written
	if err != nil {
		return f.result, f.explain(ctx, err)
	}
	return f.result, nil
}

// fetch is the state of one Fetch. Only run uses front, result and the counters below it.
// Jobs and putters send events to run.
type fetch struct {
	// The following fields are set once.
	req    FetchRequest
	limits Limits
	began  time.Time
	ctx    context.Context // ends when Fetch returns
	cancel context.CancelCauseFunc
	events chan event
	work   sync.WaitGroup
	write  sync.Once // makes puts and starts the putters
	puts   chan got  // nil until then; most DAGs are so small that no putter is needed
	whole  completer // nil if the store does not implement completer
	small  small

	buffered atomic.Int64 // bytes of req.Buffer in use by this fetch

	// The following fields are used by run only.
	front       *frontier
	result      Result
	jobs        int
	outstanding int // number of blocks passed to jobs that are neither stored nor found in the store

	pulled      atomic.Uint64 // number of blocks received from the sources
	pulledBytes atomic.Uint64
	planned     atomic.Uint64 // bytes found or received, for MaxBytes

	// mu guards the fields below.
	mu      sync.Mutex
	attempt *attempt
	faults  []strikes // error of each source
	lack    cid.Cid   // a block for which a job was waiting when it ended
	vain    int       // how often follow has given up since a block last came from other nodes
}

// got is a received block that is not stored yet.
type got struct {
	item  item
	block blocks.Block
	links []cid.Cid
	cost  int64 // bytes taken from req.Buffer
}

// event is a message of a job or a putter to run.
type event struct {
	ended bool   // a job has ended
	have  []have // blocks that are in the store now
	err   error  // an error ends the fetch
}

type have struct {
	item   item
	links  []cid.Cid
	bytes  int  // bytes that Result counts for the block
	inline bool // the block is inside its CID, so it is no block of the store
}

// attempt is the time between two calls of renew, as a context for the requests in this time.
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

// begin starts jobs while there are blocks to visit and free jobs.
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
			f.report(event{ended: true, err: err})
		})
	}
}

// handle processes an event and returns whether it was progress.
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

// report sends an event to run, unless the fetch has ended.
func (f *fetch) report(e event) {
	select {
	case f.events <- e:
	case <-f.ctx.Done():
	}
}

// idled returns the error for a fetch without a new block for Limits.Idle.
func (f *fetch) idled() error {
	e := &FetchError{Kind: ErrStalled, After: f.limits.Idle}
	if f.pulled.Load() == 0 {
		e.Kind = ErrNotFound
	}
	return e
}

// renew cancels the running requests and makes the sources send them again. bitswap
// sometimes loses a want, and only a new session asks for it again.
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

// explain adds the progress and the notes of the sources to an error.
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

// reload reads the links of a node that is in the store or in f.small.
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
