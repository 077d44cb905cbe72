package payments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// objectOf returns the key of a paid object in the bucket of all paid objects: the client's
// bucket, a slash and the client's key. Errors: state.ErrInvalid.
func objectOf(bucket, key string) (string, error) {
	object := bucket + "/" + key
	if bucket == "" || key == "" || strings.Contains(bucket, "/") || len(object) > state.MaxKeyBytes {
		return "", state.Errorf(state.CodeInvalid, "bucket and key of an object have 1 byte or more each, and at most %d together", state.MaxKeyBytes-1)
	}
	return object, nil
}

// seconds returns a paid duration in seconds. Errors: state.ErrInvalid if it is not a whole
// number of seconds or out of range.
func seconds(ttl time.Duration) (uint64, error) {
	if ttl < time.Second || ttl > state.MaxPaidSeconds*time.Second || ttl%time.Second != 0 {
		return 0, state.Errorf(state.CodeInvalid, "a paid time of %s is no number of whole seconds from 1 to %d", ttl, state.MaxPaidSeconds)
	}
	return uint64(ttl / time.Second), nil
}

// Put stores an object that r.Payment pays for. It records the payment before it reads the body,
// and settles it after the content is stored on write_copies nodes. After the settlement has
// begun, the end of ctx does not stop Put.
//
// Errors: *Rejected, ErrPaymentUsed, ErrNotOwner, ErrBusy, ErrFacilitator, ErrLength,
// state.ErrInvalid and those of objects.Put. After these nothing is stored and nothing was paid;
// if the settlement had not begun, the client can use the payment again. A *RefundError means
// that nothing is stored and that the payment must be refunded.
func (p *Payments) Put(ctx context.Context, r PutRequest) (Receipt, error) {
	object, err := objectOf(r.Bucket, r.Key)
	if err != nil {
		return Receipt{}, err
	}
	ttl, err := seconds(r.TTL)
	if err != nil {
		return Receipt{}, err
	}
	if r.Body.Size < 0 {
		return Receipt{}, state.Errorf(state.CodeInvalid, "a paid object has a known size")
	}
	a, err := p.begin(ctx, &r.Payment, r.Amount, state.Payment{
		Kind: state.PaysObject, Object: object, Bytes: uint64(r.Body.Size), Seconds: ttl,
	})
	if err != nil {
		return Receipt{}, err
	}
	held, err := a.store(ctx, object, &r)
	if err != nil {
		a.release(ctx)
		return Receipt{}, err
	}
	done, err := a.settle(ctx)
	if err != nil {
		held.Discard()
		return Receipt{}, err
	}
	obj := held.Object()
	bounded, cancel := p.detached(ctx, commitTimeout)
	defer cancel()
	err = held.Commit(bounded, func(c state.Content) error {
		b, err := p.bucket()
		if err != nil {
			return err
		}
		return a.commit(bounded, func() state.Command {
			return &state.CommitPayment{PaymentOutcome: a.ends(done), Put: &state.PutObject{
				Account: state.PaidAccount, Bucket: state.PaidBucket, Born: b.Born, Object: obj, Content: c,
			}}
		})
	})
	row, err := a.outcome(ctx, done, err)
	if err != nil {
		return Receipt{Payment: row}, fmt.Errorf("put paid object: %w", err)
	}
	p.opts.Logger.InfoContext(ctx, "paid object stored", "object", object, "payer", row.ID.Payer, "amount", row.Amount, "transaction", row.Transaction)
	return Receipt{Payment: row, Object: obj}, nil
}

// store stores the body on nodes, where leases protect it, and renews the reservation meanwhile.
// It returns ErrLength if the body does not have r.Body.Size bytes.
func (a *attempt) store(ctx context.Context, object string, r *PutRequest) (*objects.Held, error) {
	body := r.Body
	exact := &exactly{r: body.Reader, left: body.Size}
	body.Reader = exact
	stop := a.keep(ctx)
	held, err := a.p.opts.Objects.Hold(ctx, state.PaidAccount, state.PaidBucket, objects.PutRequest{Key: object, Attributes: r.Attributes, Body: body})
	stop()
	if err == nil && !exact.whole() {
		held.Discard()
		err = ErrLength
	}
	if err != nil {
		return nil, fmt.Errorf("store paid object: %w", err)
	}
	if err = ctx.Err(); err == nil { // the client is there, and can be charged
		err = a.fresh(ctx)
	}
	if err != nil {
		held.Discard()
		return nil, err
	}
	return held, nil
}

// bucket returns the bucket of all paid objects from this node's copy of the state.
func (p *Payments) bucket() (state.Bucket, error) {
	view, release := p.opts.State.LocalView()
	defer release()
	return view.Bucket(state.PaidAccount, state.PaidBucket)
}

// exactly is a reader of a body that must have exactly left bytes. Read returns ErrLength if the
// body is shorter or longer.
type exactly struct {
	r     io.Reader
	left  int64
	ended bool
}

func (e *exactly) Read(b []byte) (int, error) {
	n, err := e.r.Read(b)
	e.left -= int64(n)
	switch {
	case e.left < 0:
		return 0, ErrLength
	case errors.Is(err, io.EOF) && e.left > 0, errors.Is(err, io.ErrUnexpectedEOF):
		return n, ErrLength
	case errors.Is(err, io.EOF):
		e.ended = true
	}
	return n, err
}

// whole returns whether the body has ended with the right number of bytes.
func (e *exactly) whole() bool { return e.ended && e.left == 0 }

// Delete deletes a paid object; r.Payment pays for the deletion. The payer must be the owner of
// the object, and its paid time must not be over.
//
// Errors: *Rejected, ErrPaymentUsed, ErrNotFound, *EndedError, ErrNotOwner, ErrBusy,
// ErrFacilitator, state.ErrInvalid, state.ErrUnavailable. After these the object remains. A
// *RefundError means that the payment must be refunded.
func (p *Payments) Delete(ctx context.Context, r DeleteRequest) (Receipt, error) {
	object, err := objectOf(r.Bucket, r.Key)
	if err != nil {
		return Receipt{}, ErrNotFound
	}
	a, err := p.begin(ctx, &r.Payment, r.Amount, state.Payment{Kind: state.PaysDelete, Object: object})
	if err != nil {
		return Receipt{}, err
	}
	done, err := a.settle(ctx)
	if err != nil {
		return Receipt{}, err
	}
	bounded, cancel := p.detached(ctx, commitTimeout)
	defer cancel()
	err = a.commit(bounded, func() state.Command { return &state.DeletePaidObject{PaymentOutcome: a.ends(done)} })
	row, err := a.outcome(ctx, done, err)
	if err != nil {
		return Receipt{Payment: row}, fmt.Errorf("delete paid object: %w", err)
	}
	p.opts.Logger.InfoContext(ctx, "paid object deleted", "object", object, "payer", row.ID.Payer, "transaction", row.Transaction)
	return Receipt{Payment: row}, nil
}
