package payments

import (
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A payment waits for the agreed time at most agreedWait; if the node does not learn it, the payment fails and
// nothing is reserved. So a node that has just started sells as soon as it can, and otherwise the client can use the
// payment again.
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

// A payer gets the whole paid time for an object or a pin, although the agreed time is some seconds behind.
func TestThePaidTimeIsWhole(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, p *Payments) {
		p.opts.Agreed = func() (early, late state.Millis, ok bool) {
			now := state.MillisOf(time.Now())
			return now - 2000, now - 3, true
		}
		begun := time.Now()
		object, err := p.Put(t.Context(), putOf("k", "hello", paymentOf("0xann", "0x1")))
		if err != nil || object.Until.Time().Before(begun.Add(time.Minute)) {
			t.Errorf("the object ends after %s, %v", object.Until.Time().Sub(begun), err)
		}
		ask := PinRequest{
			CID: "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e", TTL: time.Hour, MaxBytes: 300, Amount: big.NewInt(1000), Payment: paymentOf("0xann", "0x2"),
		}
		pin, err := p.Pin(t.Context(), ask)
		if err != nil || pin.Until.Time().Before(begun.Add(ask.TTL)) {
			t.Errorf("the pin ends after %s of %s, %v", pin.Until.Time().Sub(begun), ask.TTL, err)
		}
	})
}
