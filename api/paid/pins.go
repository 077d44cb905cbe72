package paid

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// headerMaxBytes names the size that the payment for a pin pays for. A larger DAG makes the pin fail.
const headerMaxBytes = "X-Holdfast-Max-Bytes"

// defaultPinBytes is the size that is paid for if a request names none.
const defaultPinBytes = 1 << 20

// pinStatus is a pin in the form of the Pinning Service API.
type pinStatus struct {
	RequestID state.RequestID   `json:"requestid"`
	Status    string            `json:"status"`
	Created   string            `json:"created"`
	Pin       pinObject         `json:"pin"`
	Delegates []string          `json:"delegates"`
	Info      map[string]string `json:"info,omitempty"`
}

type pinObject struct {
	CID     string            `json:"cid"`
	Name    string            `json:"name,omitempty"`
	Origins []string          `json:"origins,omitempty"`
	Meta    map[string]string `json:"meta,omitempty"`
}

func statusOf(r *pins.Record) pinStatus {
	s := pinStatus{
		RequestID: r.ID, Status: r.Status.String(), Created: timeOf(r.Created.Time()),
		Pin: pinObject{r.CID, r.Name, r.Origins, r.Meta}, Delegates: r.Delegates, Info: r.Info,
	}
	if s.Delegates == nil {
		s.Delegates = []string{}
	}
	return s
}

// parsePin parses the Pin object of a request.
func parsePin(body []byte) (p payments.PinRequest, err error) {
	fields, err := web.Object("the body", body)
	if err != nil {
		return p, err
	}
	given := false
	if p.CID, given, err = fields.Text("cid"); err == nil && !given {
		err = web.BadRequest("cid is missing")
	}
	if err == nil {
		p.Name, _, err = fields.Text("name")
	}
	if err == nil {
		p.Origins, _, err = fields.Texts("origins")
	}
	if err == nil {
		p.Meta, _, err = fields.Strings("meta")
	}
	return p, err
}

// maxBytesOf returns the size that a request pays for.
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

// createPin answers POST /pins.
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
	ask, err := parsePin(body)
	if err != nil {
		return err
	}
	if _, err := (&pins.Request{CID: ask.CID, Name: ask.Name, Origins: ask.Origins, Meta: ask.Meta}).Validate(); err != nil {
		return err
	}
	o := &offer{
		description: fmt.Sprintf("pin %s, up to %d bytes for %d seconds", ask.CID, size, secondsOf(ttl)), mimeType: "application/json",
		amount: s.terms.Price(size, ttl, s.Copies()), seconds: validSeconds(0),
	}
	p, err := s.due(r, o)
	if err != nil {
		return err
	}
	ask.TTL, ask.MaxBytes, ask.Amount, ask.Payment = ttl, uint64(size), o.amount, *p
	receipt, err := s.Payments.Pin(r.Context(), ask)
	if err := settled(o, err); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), caseTimeout)
	defer cancel()
	record, err := s.Pins.Get(ctx, state.PaidAccount, receipt.Pin)
	if err != nil { // the pin exists and was paid for, so this is no failure of the request
		record.Pin = state.Pin{ID: receipt.Pin, CID: ask.CID, Name: ask.Name, Origins: ask.Origins, Meta: ask.Meta, Created: receipt.Settled, Status: state.Queued}
	}
	h := w.Header()
	h.Set(headerUntil, timeOf(receipt.Until.Time()))
	h.Set(headerOwner, receipt.ID.Payer)
	return s.ok(w, http.StatusAccepted, &receipt, statusOf(&record))
}

// getPin answers GET /pins/{requestid}.
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
	return web.JSON(w, http.StatusOK, statusOf(&record))
}
