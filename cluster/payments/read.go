package payments

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits of a page of receipts.
const (
	// MaxLimit is the largest number of receipts in a page.
	MaxLimit = state.MaxListLimit
	// DefaultLimit is the number of receipts in a page without a limit.
	DefaultLimit = 50
)

// lives returns whether the paid time of an object is not over. It uses the agreed time, or this
// node's clock if the agreed time is unknown.
func (p *Payments) lives(owner *state.PaidObject) bool {
	now, _, ok := p.opts.Agreed()
	if !ok {
		now = state.MillisOf(p.opts.Now())
	}
	return owner.Lives(now)
}

// Owner returns the owner of an object. It also works in the 30 days after the paid time has
// ended. Errors: ErrNotFound, state.ErrUnavailable.
func (p *Payments) Owner(ctx context.Context, bucket, key string) (Owner, error) {
	owner, _, err := p.find(ctx, bucket, key)
	return owner, err
}

// Head returns the record of an object and its owner. Errors: ErrNotFound, *EndedError if the
// paid time is over, state.ErrUnavailable.
func (p *Payments) Head(ctx context.Context, bucket, key string) (Opened, error) {
	owner, obj, err := p.find(ctx, bucket, key)
	if err == nil && owner.Ended {
		err = &EndedError{Until: owner.Until}
	}
	if err != nil {
		return Opened{}, err
	}
	return Opened{Object: obj, Owner: owner}, nil
}

// find returns the owner of an object and the record of the object. The record is zero if the
// paid time is over.
func (p *Payments) find(ctx context.Context, bucket, key string) (owner Owner, obj state.Object, err error) {
	object, err := objectOf(bucket, key)
	if err != nil {
		return owner, obj, ErrNotFound
	}
	view, release, err := p.opts.State.View(ctx)
	if err != nil {
		return owner, obj, fmt.Errorf("read state: %w", err)
	}
	defer release()
	row, err := view.PaidObject(object)
	if errors.Is(err, state.ErrNotFound) {
		err = ErrNotFound
	}
	if err != nil {
		return owner, obj, err
	}
	owner = Owner{Payer: row.Payer, Until: row.Until.Time(), Ended: !p.lives(&row)}
	if owner.Ended {
		return owner, obj, nil
	}
	b, err := view.Bucket(state.PaidAccount, state.PaidBucket)
	if err != nil {
		return owner, obj, err
	}
	obj, err = view.Object(&b, object)
	return owner, obj, err
}

// Open opens the content of an object that Head has returned. The caller must close it. Errors:
// those of objects.Open.
func (p *Payments) Open(ctx context.Context, o *Opened) (io.ReadSeekCloser, error) {
	return p.opts.Objects.Open(ctx, state.PaidAccount, &o.Object)
}

// List returns a page of all payments, the newest first. cursor is Page.Next of the previous
// page, or "" for the first page. limit is the number of payments; 0 means DefaultLimit. Errors:
// state.ErrInvalid for an invalid limit or cursor, state.ErrUnavailable.
func (p *Payments) List(ctx context.Context, cursor string, limit int) (Page, error) {
	if limit < 0 || limit > MaxLimit {
		return Page{}, state.Errorf(state.CodeInvalid, "a page has 1 to %d receipts", MaxLimit)
	}
	if limit == 0 {
		limit = DefaultLimit
	}
	after, err := parseCursor(cursor)
	if err != nil {
		return Page{}, err
	}
	view, release, err := p.opts.State.View(ctx)
	if err != nil {
		return Page{}, fmt.Errorf("list receipts: %w", err)
	}
	defer release()
	rows, more, err := view.Payments(state.PaymentsQuery{After: after, Limit: limit})
	if err != nil {
		return Page{}, fmt.Errorf("list receipts: %w", err)
	}
	page := Page{Receipts: rows}
	if more {
		page.Next = formCursor(rows[len(rows)-1].Place())
	}
	return page, nil
}

// formCursor returns the cursor for the page that follows a payment. It separates the parts by
// line breaks, which the parts cannot contain.
func formCursor(at state.PaymentPlace) string {
	text := strings.Join([]string{strconv.FormatInt(int64(at.Reserved), 10), at.ID.Network, at.ID.Asset, at.ID.Payer, at.ID.Nonce}, "\n")
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// maxCursor is the largest length of a cursor in bytes.
const maxCursor = 1024

func parseCursor(cursor string) (at state.PaymentPlace, err error) {
	if cursor == "" {
		return at, nil
	}
	bad := state.Errorf(state.CodeInvalid, "the cursor is none that a page of receipts has")
	if len(cursor) > maxCursor {
		return at, bad
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return at, bad
	}
	parts := strings.Split(string(text), "\n")
	if len(parts) != 5 {
		return at, bad
	}
	reserved, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || reserved <= 0 {
		return at, bad
	}
	return state.PaymentPlace{
		Reserved: state.Millis(reserved), ID: state.PaymentID{Network: parts[1], Asset: parts[2], Payer: parts[3], Nonce: parts[4]},
	}, nil
}

// Sums returns the number of payments and their total amount for each combination of state,
// network and asset. Errors: state.ErrUnavailable.
func (p *Payments) Sums(ctx context.Context) ([]state.PaymentSum, error) {
	view, release, err := p.opts.State.View(ctx)
	if err != nil {
		return nil, fmt.Errorf("sum receipts: %w", err)
	}
	defer release()
	return view.PaymentSums()
}

// Payment returns a payment by its id. Errors: state.ErrNotFound, state.ErrUnavailable.
func (p *Payments) Payment(ctx context.Context, id state.PaymentID) (state.Payment, error) {
	view, release, err := p.opts.State.View(ctx)
	if err != nil {
		return state.Payment{}, fmt.Errorf("read receipt: %w", err)
	}
	defer release()
	return view.Payment(id)
}

// FindPin returns a paid pin by its request id. Errors: state.ErrNotFound, state.ErrUnavailable.
func (p *Payments) FindPin(ctx context.Context, id state.RequestID) (state.Pin, error) {
	view, release, err := p.opts.State.View(ctx)
	if err != nil {
		return state.Pin{}, fmt.Errorf("read pin: %w", err)
	}
	defer release()
	return view.Pin(state.PaidAccount, id)
}
