// Package payments implements the paid gateway: clients without an account store content and pay
// for it by a payment on a blockchain such as Base. A facilitator is the service that verifies
// and executes such payments. The payment is recorded in the replicated state before its content
// is stored. The object is created after the facilitator has settled the payment.
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
	// View returns a linearizable view of the state. The caller must call release. View returns
	// state.ErrUnavailable without a majority.
	View(ctx context.Context) (view state.View, release func(), err error)
	// LocalView returns a view of the state after the entries that this node has applied. The
	// caller must call release.
	LocalView() (view state.View, release func())
	// Propose commits a command. When Propose returns a result, this node has applied the
	// command.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
	// IsLeader returns whether this node leads the cluster.
	IsLeader() bool
}

// Limits of an attempt to pay.
const (
	// settleTimeout limits the time of all requests to settle a payment, and settleTries their
	// number.
	settleTimeout = 30 * time.Second
	settleTries   = 3
	// commitTimeout limits the time in which a node without a majority tries to commit a settled
	// payment.
	commitTimeout = 2 * time.Minute
	// endTimeout limits the time in which a node tries to record that a payment failed or was not
	// used.
	endTimeout = 10 * time.Second
	// agreedWait limits the wait for the agreed time of the members, and agreedPoll is the
	// interval at which it is read.
	agreedWait = 10 * time.Second
	agreedPoll = 100 * time.Millisecond
	// renewAfter is the time after which a reservation is renewed. It is far below
	// state.PaymentTimeout, so that the reservation outlives settleTimeout and commitTimeout.
	renewAfter = 5 * time.Minute
	// settlePause is the first pause between two requests to settle, and firstPause the first
	// pause between two proposals of a command. Both double up to longestPause.
	settlePause  = time.Second
	firstPause   = 200 * time.Millisecond
	longestPause = 4 * time.Second
)

// Options are the dependencies of Payments. Now, Agreed, NewID and Logger may be zero. Without a
// Facilitator, this node sells nothing, but still lists payments and sweeps expired content.
type Options struct {
	Self        state.NodeID
	State       State
	Objects     *objects.Objects
	Pinner      Pinner
	Facilitator Facilitator
	Journal     Journal // nil means that a node that stops forgets its settlements
	Now         func() time.Time
	// Agreed returns two times: early, which the clocks of most members have reached, and late,
	// which they have not passed. Paid times begin and end by early. ok is false while these are
	// unknown. Nil means the clock Now.
	Agreed func() (early, late state.Millis, ok bool)
	NewID  func() string // returns a unique id for an attempt and for a pin
	Logger *slog.Logger
}

// Payments is the service of the paid gateway. New creates it.
type Payments struct {
	opts Options
	life context.Context // context that ends when Run ends
	end  context.CancelFunc

	mu   sync.Mutex
	left []settled // settlements for the next call of recall, because their attempts have ended

	// Only recall uses the following fields, and it does not run concurrently.
	askFrom   time.Time // time before which a facilitator that did not answer is not asked again
	questions int       // number of questions to the facilitator that this pass may still ask
}

// New returns a Payments. It reads the settlements that an earlier process has left in the
// journal.
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

// Supported returns nil if the facilitator answers and supports the configured network. Errors:
// ErrFacilitator, state.ErrUnavailable without a Facilitator.
func (p *Payments) Supported(ctx context.Context) error {
	if p.opts.Facilitator == nil {
		return errNoFacilitator
	}
	return p.opts.Facilitator.Supported(ctx)
}

// runEvery is the time between two passes of Run.
const runEvery = 10 * time.Second

// Run does three tasks until ctx ends. On the leader, it deletes paid content whose time is over,
// and old receipts of failed payments. On the leader, it also makes payments refundable whose
// node has abandoned them. On every node, it records the outcomes that the node could not record
// before, see recall. When Run ends, running attempts end too.
func (p *Payments) Run(ctx context.Context) error {
	defer p.end()
	return duty.Every(ctx, runEvery, p.opts.Logger, "paid content not swept yet", func(ctx context.Context) error {
		p.recall(ctx)
		return p.Sweep(ctx)
	})
}

// Sweep does the leader's tasks of one pass of Run. It does nothing on other nodes or while the
// agreed time is unknown. Errors: state.ErrUnavailable without a majority.
func (p *Payments) Sweep(ctx context.Context) error {
	due := duty.Duty{State: p.opts.State, Agreed: p.opts.Agreed, Due: func(view state.View, now state.Millis) (state.Command, error) {
		if level, err := view.FeatureLevel(); err != nil || level < state.PaymentsLevel {
			return nil, err
		}
		return view.PaymentsDue(now)
	}}
	return due.Do(ctx)
}

// detached returns a context that ends after the duration most or with Run, but not with ctx: a
// settled payment must be recorded even if its client has disconnected.
func (p *Payments) detached(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	stop := context.AfterFunc(p.life, cancel)
	return ctx, func() { stop(); cancel() }
}
