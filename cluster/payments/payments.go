// Package payments is the use case of the paid gateway: content that a payment on a network pays for,
// without an account. A payment is recorded in the replicated state before its content is stored, and
// the content gets its name after the payment was settled.
//
// Imports: consensus/state, consensus/codec, cluster/duty, cluster/objects, cluster/pins, uuid, prometheus.
// Never:   raft, libp2p, storage, HTTP.
package payments

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/holdfast-ipfs/holdfast/cluster/duty"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// State is the part of consensus that this package uses.
type State interface {
	// View returns a linearizable view of the state; the caller releases it. It fails with
	// state.ErrUnavailable without a majority.
	View(ctx context.Context) (view state.View, release func(), err error)
	// LocalView returns a view of the entries that this node has applied; the caller releases it.
	LocalView() (view state.View, release func())
	// Propose commits a command. When it returns a result, this node has applied the command too.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
	// IsLeader returns whether this node leads the cluster.
	IsLeader() bool
}

// Bounds of an attempt.
const (
	// settleTimeout bounds all tries to settle a payment, and settleTries their number.
	settleTimeout = 30 * time.Second
	settleTries   = 3
	// commitTimeout bounds the tries to commit a settled payment without a majority.
	commitTimeout = 2 * time.Minute
	// endTimeout bounds the tries to record that a payment failed or was not used.
	endTimeout = 10 * time.Second
	// agreedWait bounds the wait for the time of most members, and agreedPoll is the time between two looks.
	agreedWait = 10 * time.Second
	agreedPoll = 100 * time.Millisecond
	// renewAfter is the time after which a reservation is renewed. It is far below
	// state.PaymentTimeout, so that the reservation outlives settleTimeout and commitTimeout.
	renewAfter = 5 * time.Minute
	// settlePause is the first pause between two tries to settle, and firstPause between two
	// proposals. Both double, up to longestPause.
	settlePause  = time.Second
	firstPause   = 200 * time.Millisecond
	longestPause = 4 * time.Second
)

// Options are the dependencies of Payments. Now, Agreed, NewID and Logger may be left out. Without a
// Facilitator, payments are swept and listed, and nothing is sold.
type Options struct {
	Self        state.NodeID
	State       State
	Objects     *objects.Objects
	Pinner      Pinner
	Facilitator Facilitator
	Journal     Journal // nil: a node that stops forgets its settlements
	Now         func() time.Time
	// Agreed returns a time that the clocks of most members have reached; paid times begin and end
	// by it. ok is false while no such time is known. Nil means Now.
	Agreed func() (early, late state.Millis, ok bool)
	NewID  func() string // returns a unique id for an attempt and for a pin
	Logger *slog.Logger
}

// Payments is the use case of the paid gateway.
type Payments struct {
	opts Options
	life context.Context // ends with Run
	end  context.CancelFunc

	mu   sync.Mutex
	left []settled // settlements that nobody records any more

	// The following fields are of recall, which runs once at a time.
	askFrom   time.Time // when a facilitator that did not answer is asked again
	questions int       // that may still be asked in this pass
}

// New returns the use case of the paid gateway.
func New(o Options) *Payments {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Agreed == nil {
		o.Agreed = state.OneClock(o.Now)
	}
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Payments{opts: o}
	p.left = p.noted() // before the first attempt
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// Supported returns nil if the facilitator answers and supports the network. Errors: ErrFacilitator.
func (p *Payments) Supported(ctx context.Context) error {
	if p.opts.Facilitator == nil {
		return errNoFacilitator
	}
	return p.opts.Facilitator.Supported(ctx)
}

// runEvery is the time between two passes of Run.
const runEvery = 10 * time.Second

// Run does three things until ctx ends. On the leader, it removes paid content whose time is over and receipts
// of failed payments. On the leader, it makes payments refundable whose node has abandoned them. On every node,
// it records the settlements that the node knew when it stopped, or could not record in time. When Run ends, it
// ends the attempts that are under way too.
func (p *Payments) Run(ctx context.Context) error {
	defer p.end()
	return duty.Every(ctx, runEvery, p.opts.Logger, "paid content not swept yet", func(ctx context.Context) error {
		p.recall(ctx)
		return p.Sweep(ctx)
	})
}

// Sweep is one pass of Run. It does nothing while the agreed time is unknown, and on a node that does
// not lead. Errors: state.ErrUnavailable without a majority.
func (p *Payments) Sweep(ctx context.Context) error {
	due := duty.Duty{State: p.opts.State, Agreed: p.opts.Agreed, Due: func(view state.View, now state.Millis) (state.Command, error) {
		if level, err := view.FeatureLevel(); err != nil || level < state.PaymentsLevel {
			return nil, err
		}
		return view.PaymentsDue(now)
	}}
	return due.Do(ctx)
}

// detached returns a context that ends after a time or with Run, and not with ctx: a settled payment is
// recorded although its client has gone.
func (p *Payments) detached(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	stop := context.AfterFunc(p.life, cancel)
	return ctx, func() { stop(); cancel() }
}
