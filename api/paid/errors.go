package paid

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// retryAfter is the value of Retry-After in answers with status 429 and 503, in seconds.
const retryAfter = 60

// failure is the JSON body of an error answer of the gateway.
type failure struct {
	Code       string `json:"error"`
	Message    string `json:"message,omitempty"`
	RetryAfter int64  `json:"retry_after,omitempty"` // seconds
	Until      string `json:"until,omitempty"`       // end of the paid time, for 410
	// Payment is the state of a payment that was or may have been settled although the request failed,
	// such as refundable.
	Payment     string `json:"payment,omitempty"`
	Transaction string `json:"transaction,omitempty"`
}

// paymentRequired is the error that is answered with 402: the request has no payment, or its
// payment was rejected.
type paymentRequired struct {
	offer  *offer
	reason string // of x402, such as reasonRequired
}

func (e *paymentRequired) Error() string { return "402: " + e.reason }

// codes maps error codes of the state to the status and the code of the answer.
var codes = map[state.Code]struct {
	status int
	code   string
}{
	state.CodeInvalid:      {http.StatusBadRequest, "BAD_REQUEST"},
	state.CodeTooLarge:     {http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE"},
	state.CodeQuota:        {http.StatusInsufficientStorage, "INSUFFICIENT_STORAGE"},
	state.CodeNoSpace:      {http.StatusInsufficientStorage, "INSUFFICIENT_STORAGE"},
	state.CodeNotFound:     {http.StatusNotFound, "NOT_FOUND"},
	state.CodeNoKey:        {http.StatusNotFound, "NOT_FOUND"},
	state.CodeNoBucket:     {http.StatusNotFound, "NOT_FOUND"},
	state.CodeForbidden:    {http.StatusForbidden, "FORBIDDEN"},
	state.CodeConflict:     {http.StatusConflict, "CONFLICT"},
	state.CodeExists:       {http.StatusConflict, "CONFLICT"},
	state.CodePrecondition: {http.StatusConflict, "CONFLICT"},
	state.CodeLimited:      {http.StatusTooManyRequests, "RATE_LIMITED"},
	state.CodeUnavailable:  {http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE"},
}

// statuses maps HTTP status codes to the code of the answer, for errors of package web whose
// reason differs.
var statuses = map[int]string{
	http.StatusTooManyRequests: "RATE_LIMITED", http.StatusServiceUnavailable: "SERVICE_UNAVAILABLE",
}

// fail writes the answer to an error of a handler.
func (s *surface) fail(w http.ResponseWriter, _ *http.Request, err error) error {
	var due *paymentRequired
	if errors.As(err, &due) {
		return s.require(w, due)
	}
	status, f := failureOf(err)
	var owed *payments.RefundError
	if errors.As(err, &owed) {
		f.Payment, f.Transaction = owed.Payment.State.String(), owed.Payment.Transaction
	}
	h := w.Header()
	switch status {
	case http.StatusTooManyRequests:
		f.RetryAfter, f.Message = retryAfter, ""
	case http.StatusRequestEntityTooLarge:
		h.Set("Connection", "close") // the rest of the body is not read
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	return web.JSON(w, status, f)
}

// require answers 402 with the payment requirements in both versions of x402.
func (s *surface) require(w http.ResponseWriter, due *paymentRequired) error {
	body, header, err := s.terms.required(due.offer, due.reason)
	if err != nil {
		return fmt.Errorf("encode requirements: %w", err)
	}
	w.Header().Set(headerV2Required, header)
	return web.JSON(w, http.StatusPaymentRequired, body)
}

// failureOf returns the status and the body of the answer to an error that is no paymentRequired.
func failureOf(err error) (int, failure) {
	var own *web.Error
	var coded *state.Error
	var ended *payments.EndedError
	switch {
	case errors.As(err, &own):
		f := failure{Code: own.Answer.Reason, Message: own.Answer.Detail}
		if code, ok := statuses[own.Answer.Status]; ok {
			f.Code = code
		}
		return own.Answer.Status, f
	case errors.As(err, &ended):
		return http.StatusGone, failure{Code: "GONE", Message: "the paid time of this object is over", Until: ended.Until.UTC().Format(time.RFC3339)}
	case errors.Is(err, payments.ErrNotFound):
		return http.StatusNotFound, failure{Code: "NOT_FOUND", Message: "nobody has paid for such an object"}
	case errors.Is(err, payments.ErrNotOwner):
		return http.StatusForbidden, failure{Code: "FORBIDDEN", Message: "this belongs to another payer"}
	case errors.Is(err, payments.ErrBusy):
		return http.StatusConflict, failure{Code: "CONFLICT", Message: "another payment for this object is in progress"}
	case errors.Is(err, payments.ErrLength):
		return http.StatusBadRequest, failure{Code: "INCOMPLETE_BODY", Message: "the body does not have the length that was paid; the payment was not used"}
	case errors.Is(err, payments.ErrFacilitator):
		return http.StatusServiceUnavailable, failure{Code: "SERVICE_UNAVAILABLE", Message: "payments cannot be processed now, and nothing was stored"}
	case errors.As(err, &coded):
		if row, ok := codes[coded.Code]; ok {
			return row.status, failure{Code: row.code, Message: coded.Detail}
		}
	case timedOut(err):
		return http.StatusServiceUnavailable, failure{Code: "SERVICE_UNAVAILABLE", Message: "the cluster did not answer in time"}
	}
	return http.StatusInternalServerError, failure{Code: "INTERNAL_SERVER_ERROR", Message: "internal error; X-Request-Id names it in the log"}
}

// refusalOf returns the x402 reason if err means that the payment was rejected, and "" otherwise.
// A RefundError is no rejection, because that payment was or may have been settled.
func refusalOf(err error) string {
	var no *payments.Rejected
	switch {
	case errors.As(err, new(*payments.RefundError)):
		return ""
	case errors.As(err, &no):
		return strings.TrimSpace(no.Reason)
	case errors.Is(err, payments.ErrPaymentUsed):
		return reasonUsed
	}
	return ""
}

// timedOut reports whether err means that the cluster did not answer in time.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
