package payments

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A node that has just started sells as soon as it knows the time of most members. If it does not learn
// it, nothing is reserved, and the client can use the payment again.
func TestAPaymentWaitsForTheTimeOfMostMembers(t *testing.T) {
	for name, tc := range map[string]struct {
		after time.Duration
		want  error
	}{
		"known after a while": {3 * time.Second, nil},
		"never known":         {time.Hour, state.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, w *world, p *Payments) {
				begun, now := time.Now(), p.opts.Agreed
				p.opts.Agreed = func() (early, late state.Millis, ok bool) {
					if time.Since(begun) < tc.after {
						return 0, 0, false
					}
					return now()
				}
				pay := paymentOf("0xann", "0x1")
				_, err := p.Put(t.Context(), putOf("k", "hello", pay))
				if !errors.Is(err, tc.want) || time.Since(begun) != min(tc.after, agreedWait) {
					t.Fatalf("%v after %s", err, time.Since(begun))
				}
				if tc.want == nil {
					w.wantRow(pay, state.PaymentPaid, "")
					return
				}
				view, release := w.state.LocalView()
				defer release()
				if _, err := view.Payment(pay.ID()); !errors.Is(err, state.ErrNotFound) {
					t.Errorf("the payment was recorded: %v", err)
				}
			})
		})
	}
}
