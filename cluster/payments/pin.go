package payments

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Pinner chooses the nodes of pins.
type Pinner interface {
	// NodesFor returns the nodes to which a root is allocated if it is new. Errors:
	// state.ErrNoSpace.
	NodesFor(root state.RootKey) ([]state.NodeID, error)
}

// placeAttempts is how often nodes are chosen for a pin if a chosen member leaves the cluster
// before the commit.
const placeAttempts = 4

// Pin creates a pin that r.Payment pays for. The pin ends after r.TTL. If the content is larger
// than r.MaxBytes, the pin fails later and the payment is not refunded.
//
// Errors: those of Put, and state.ErrInvalid that describes the mistake in the request.
func (p *Payments) Pin(ctx context.Context, r PinRequest) (Receipt, error) {
	ttl, err := seconds(r.TTL)
	if err != nil {
		return Receipt{}, err
	}
	asked := pins.Request{CID: r.CID, Name: r.Name, Origins: r.Origins, Meta: r.Meta}
	c, err := asked.Validate()
	if err != nil {
		return Receipt{}, err
	}
	root := state.RootOf(c)
	if _, err := p.opts.Pinner.NodesFor(root); err != nil { // before anything is paid
		return Receipt{}, fmt.Errorf("place paid pin: %w", err)
	}
	a, err := p.begin(ctx, &r.Payment, r.Amount, state.Payment{
		Kind: state.PaysPin, Pin: state.RequestID(p.opts.NewID()), Bytes: r.MaxBytes, Seconds: ttl,
	})
	if err != nil {
		return Receipt{}, err
	}
	done, err := a.settle(ctx)
	if err != nil {
		return Receipt{}, err
	}
	pin := state.Pin{
		ID: a.row.Pin, Account: state.PaidAccount, Created: a.now(), CID: r.CID, Name: r.Name, Origins: r.Origins, Meta: r.Meta,
		Given: asked.GivenFields(), MaxBytes: r.MaxBytes,
	}
	row, err := a.outcome(ctx, done, a.commitPin(ctx, done, pin, root))
	if err != nil {
		return Receipt{Payment: row}, fmt.Errorf("create paid pin: %w", err)
	}
	p.opts.Logger.InfoContext(ctx, "paid pin created", "pin", pin.ID, "root", root, "payer", row.ID.Payer, "transaction", row.Transaction)
	return Receipt{Payment: row, Pin: pin.ID}, nil
}

// commitPin commits the pin of a settled payment. If a chosen node has left the cluster, it
// chooses nodes again.
func (a *attempt) commitPin(ctx context.Context, done Settlement, pin state.Pin, root state.RootKey) error {
	ctx, cancel := a.p.detached(ctx, commitTimeout)
	defer cancel()
	for try := 1; ; try++ {
		nodes, err := a.p.opts.Pinner.NodesFor(root)
		if err == nil {
			err = a.commit(ctx, func() state.Command {
				return &state.CommitPayment{PaymentOutcome: a.ends(done), Pin: &state.CreatePin{Pin: pin, Nodes: nodes}}
			})
		}
		if err == nil || !errors.Is(err, state.ErrConflict) || try == placeAttempts {
			return err
		}
	}
}
