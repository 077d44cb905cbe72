package paid

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/pinbody"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// headerMaxBytes is the request header with the number of bytes that the payment for a pin
// covers. A pin with a larger DAG fails.
const headerMaxBytes = "X-Holdfast-Max-Bytes"

// defaultPinBytes is the number of bytes that a payment for a pin covers without headerMaxBytes.
const defaultPinBytes = 1 << 20

// maxBytesOf returns the number of bytes that the payment for a pin must cover: headerMaxBytes,
// or the default. The error is 400 for a malformed number, and 413 if it exceeds MaxSize.
func (t *Terms) maxBytesOf(h http.Header) (int64, error) {
	text := h.Get(headerMaxBytes)
	if text == "" {
		return min(defaultPinBytes, t.MaxSize), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, web.BadRequest("%s must be a whole number of bytes", headerMaxBytes)
	}
	if n > t.MaxSize {
		return 0, web.Errorf(http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "%s is larger than %d bytes", headerMaxBytes, t.MaxSize)
	}
	return n, nil
}

// createPin answers POST /pins: it creates a pin for the TTL that the request names. The price
// depends on the TTL and on the maximum size of the DAG.
func (s *surface) createPin(w http.ResponseWriter, r *http.Request) error {
	ttl, err := s.terms.ttlOf(r.Header)
	if err != nil {
		return err
	}
	size, err := s.terms.maxBytesOf(r.Header)
	if err != nil {
		return err
	}
	held := s.Limits.HoldUnknown(r)
	defer held.Release()
	// The body is read before the price is stated, so that nobody signs a payment for a bad request.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(web.StallTimeout))
	body, err := web.Body(w, r, web.MaxJSONBody, held)
	if err != nil {
		return err
	}
	_ = control.SetReadDeadline(time.Time{})
	pin, err := pinbody.Parse(body)
	if err != nil {
		return err
	}
	if _, err := pin.Validate(); err != nil {
		return err
	}
	o := &offer{
		description: fmt.Sprintf("pin %s, up to %d bytes for %d seconds", pin.CID, size, secondsOf(ttl)), mimeType: "application/json",
		amount: s.terms.Price(size, ttl, s.Copies()), seconds: validSeconds(0),
	}
	p, err := s.due(r, o)
	if err != nil {
		return err
	}
	receipt, err := s.Payments.Pin(r.Context(), payments.PinRequest{
		CID: pin.CID, Name: pin.Name, Origins: pin.Origins, Meta: pin.Meta, TTL: ttl, MaxBytes: uint64(size), Amount: o.amount, Payment: *p,
	})
	if err := settled(o, err); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), caseTimeout)
	defer cancel()
	record, err := s.Pins.Get(ctx, state.PaidAccount, receipt.Pin)
	if err != nil { // the pin exists and was paid for, so this is no failure of the request
		record.Pin = state.Pin{
			ID: receipt.Pin, CID: pin.CID, Given: pin.GivenFields(), Name: pin.Name, Origins: pin.Origins, Meta: pin.Meta, Created: receipt.Settled, Status: state.Queued,
		}
	}
	h := w.Header()
	h.Set(headerUntil, timeOf(receipt.Until.Time()))
	h.Set(headerOwner, receipt.ID.Payer)
	return s.ok(w, http.StatusAccepted, &receipt, pinbody.Of(&record))
}

// getPin answers GET /pins/{requestid} with the status of a pin that was paid for. It needs no
// payment.
func (s *surface) getPin(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("requestid")
	if len(id) > state.MaxIDLen {
		return state.ErrNotFound
	}
	ctx, cancel := context.WithTimeout(r.Context(), caseTimeout)
	defer cancel()
	if _, err := s.Payments.FindPin(ctx, state.RequestID(id)); err != nil {
		return err
	}
	record, err := s.Pins.Get(ctx, state.PaidAccount, state.RequestID(id))
	if err != nil {
		return err
	}
	return web.JSON(w, http.StatusOK, pinbody.Of(&record))
}
