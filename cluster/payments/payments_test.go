package payments

import (
	"context"
	"errors"
	"io"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// inTime runs a test in virtual time.
func inTime(t *testing.T, fn func(t *testing.T, w *world, p *Payments)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		fn(t, w, w.on("n1", w.state, w.chain))
	})
}

// after lets virtual time pass.
func after(d time.Duration) { <-time.After(d) }

// A paid object can be read until its time is over, then Head says when it ended, and the sweep removes its content.
func TestAPaidObjectIsReadUntilItsTimeIsOver(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, p *Payments) {
		pay := paymentOf("0xann", "0x1")
		if _, err := p.Head(t.Context(), "b", "k"); !errors.Is(err, ErrNotFound) {
			t.Errorf("before the payment: %v", err)
		}
		begun := time.Now()
		r, err := p.Put(t.Context(), putOf("k", "hello", pay))
		if err != nil {
			t.Fatal(err)
		}
		if r.State != state.PaymentPaid || r.Until.Time().Sub(begun) != time.Minute || r.Settlement().Transaction != "0x7a0x1" || r.Object.Size != 5 || r.Bytes != 5 {
			t.Errorf("the receipt is %+v", r)
		}
		w.told("true")
		w.check("b/k", pay)
		o, err := p.Head(t.Context(), "b", "k")
		if err != nil || o.Owner.Payer != "0xann" || o.Object.Root != r.Object.Root {
			t.Fatalf("%+v, %v", o, err)
		}
		f, err := p.Open(t.Context(), &o)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(f); string(text) != "hello" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		after(time.Minute)
		var ended *EndedError
		if _, err := p.Head(t.Context(), "b", "k"); !errors.As(err, &ended) || !ended.Until.Equal(r.Until.Time()) {
			t.Errorf("after the end: %v", err)
		}
		if err := p.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Head(t.Context(), "b", "k"); !errors.As(err, &ended) {
			t.Errorf("after the sweep: %v", err)
		}
		view, release := w.state.LocalView()
		defer release()
		if _, err := view.Root(r.Object.Root); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("the content stays: %v", err)
		}
	})
}

// Whatever a facilitator does, a payment gets the right answer and the right record: paid, failed, refundable or
// none.
func TestWhatAFacilitatorDoes(t *testing.T) {
	lost := func(_ int, execute func() (Settlement, error)) (Settlement, error) {
		_, err := execute()
		return Settlement{}, errors.Join(errCut, err)
	}
	for name, tc := range map[string]struct {
		verify   func() error
		settle   func(int, func() (Settlement, error)) (Settlement, error)
		want     error
		rejected bool
		state    state.PaymentState
		reason   string
		told     string
	}{
		"is down": {verify: func() error { return errCut }, want: ErrFacilitator},
		"rejects": {verify: func() error { return &Rejected{Reason: "insufficient_funds"} }, rejected: true},
		"refuses to settle": {settle: func(int, func() (Settlement, error)) (Settlement, error) {
			return Settlement{}, &Rejected{Reason: "insufficient_funds"}
		}, rejected: true, state: state.PaymentFailed, reason: "insufficient_funds", told: "false"},
		"never answers": {
			settle: func(int, func() (Settlement, error)) (Settlement, error) { return Settlement{}, errCut },
			want:   ErrFacilitator, state: state.PaymentRefundable, reason: "may have been settled", told: "false",
		},
		"loses every answer": {settle: lost, want: ErrFacilitator, state: state.PaymentRefundable, reason: "may have been settled", told: "false"},
		"loses the first answer and executes at the second": {
			settle: func(try int, execute func() (Settlement, error)) (Settlement, error) {
				if try == 1 {
					return Settlement{}, errCut
				}
				return execute()
			},
			state: state.PaymentPaid, told: "true",
		},
		"loses the first answer and then refuses, because the nonce was used": {
			settle: func(try int, execute func() (Settlement, error)) (Settlement, error) {
				if try == 1 {
					_, _ = execute()
					return Settlement{}, errCut
				}
				return execute()
			},
			want: ErrFacilitator, state: state.PaymentRefundable, reason: "may have been settled", told: "false",
		},
		"answers after a minute": {
			settle: func(_ int, execute func() (Settlement, error)) (Settlement, error) {
				after(time.Minute)
				return execute()
			},
			state: state.PaymentPaid, told: "true",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, w *world, p *Payments) {
				w.chain.verify, w.chain.settle = tc.verify, tc.settle
				pay := paymentOf("0xann", "0x1")
				r, err := p.Put(t.Context(), putOf("k", "hello", pay))
				var rejected *Rejected
				if tc.rejected != errors.As(err, &rejected) || !tc.rejected && !errors.Is(err, tc.want) {
					t.Errorf("the answer is %v, want %v, rejected: %t", err, tc.want, tc.rejected)
				}
				if tc.state == 0 && (w.row(pay).State != 0 || len(w.kept) > 0) {
					t.Errorf("something is stored: %+v", w.row(pay))
				}
				if tc.state != 0 {
					w.wantRow(pay, tc.state, tc.reason)
					w.told(tc.told)
				}
				if err == nil && r.State != state.PaymentPaid {
					t.Errorf("the receipt is %+v", r)
				}
				w.check("b/k", pay)
			})
		})
	}
}

// A body of another length is not stored, and the payment can be used again.
func TestABodyOfAnotherLengthIsRefused(t *testing.T) {
	for name, body := range map[string]string{"shorter": "hell", "longer": "hello!", "empty": ""} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, w *world, p *Payments) {
				pay := paymentOf("0xann", "0x1")
				r := putOf("k", "hello", pay)
				r.Body.Reader = strings.NewReader(body)
				if _, err := p.Put(t.Context(), r); !errors.Is(err, ErrLength) {
					t.Errorf("the answer is %v", err)
				}
				if w.row(pay).State != 0 || w.chain.settles > 0 {
					t.Errorf("the payment is %+v, %d settlements", w.row(pay), w.chain.settles)
				}
				w.check("b/k", pay)
				if _, err := p.Put(t.Context(), putOf("k", "hello", pay)); err != nil {
					t.Errorf("with the right length: %v", err)
				}
				w.check("b/k", pay)
			})
		})
	}
}

// A payment that was used is refused for any object without a question to the facilitator, and one below the price is
// rejected.
func TestAPaymentIsUsedOnce(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, p *Payments) {
		pay := paymentOf("0xann", "0x1")
		if _, err := p.Put(t.Context(), putOf("k", "hello", pay)); err != nil {
			t.Fatal(err)
		}
		asked := 0
		w.chain.verify = func() error { asked++; return nil }
		for _, key := range []string{"k", "other"} {
			if _, err := p.Put(t.Context(), putOf(key, "hello", pay)); !errors.Is(err, ErrPaymentUsed) {
				t.Errorf("%s: %v", key, err)
			}
		}
		if _, err := p.Delete(t.Context(), DeleteRequest{"b", "k", big.NewInt(1), pay}); !errors.Is(err, ErrPaymentUsed) {
			t.Errorf("delete: %v", err)
		}
		if asked > 0 {
			t.Error("the facilitator was asked about a payment that was used")
		}
		little := paymentOf("0xann", "0x2")
		little.Value = big.NewInt(999)
		var rejected *Rejected
		if _, err := p.Put(t.Context(), putOf("k", "hello", little)); !errors.As(err, &rejected) || w.row(little).State != 0 {
			t.Errorf("a payment below the price: %v", err)
		}
	})
}

// A node that lacks the record of a used payment answers ErrPaymentUsed, whatever the facilitator says. It reads the
// state of the cluster only for a refusal.
func TestALaggingNodeKnowsAUsedPayment(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, p *Payments) {
		if _, err := p.Put(t.Context(), putOf("k", "hello", paymentOf("0xann", "0x1"))); err != nil {
			t.Fatal(err)
		}
		late := w.on("n2", clustertest.NewLagging(t, w.state), w.chain)
		used := paymentOf("0xann", "0x2")
		if _, err := p.Put(t.Context(), putOf("k2", "hello", used)); err != nil {
			t.Fatal(err)
		}
		for _, says := range []error{nil, &Rejected{Reason: "nonce is used", Payer: used.Payer}} {
			w.chain.verify = func() error { return says }
			if _, err := late.Put(t.Context(), putOf("k", "hello", used)); !errors.Is(err, ErrPaymentUsed) {
				t.Errorf("the facilitator says %v: %v", says, err)
			}
		}
		w.chain.verify = nil
		reads := &reader{State: w.state}
		if _, err := w.on("n3", reads, w.chain).Put(t.Context(), putOf("k", "hello", paymentOf("0xann", "0x3"))); err != nil || reads.asked > 0 {
			t.Errorf("a new payment: %v; the cluster was asked for its state %d times", err, reads.asked)
		}
	})
}

// reader counts how often the state of the cluster is read.
type reader struct {
	*clustertest.State
	asked int
}

func (r *reader) View(ctx context.Context) (state.View, func(), error) {
	r.asked++
	return r.State.View(ctx)
}

// Only the payer of an object replaces or deletes it, and a refused payment is not used; after the end anybody may
// pay for the name.
func TestOnlyThePayerChangesItsObject(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, p *Payments) {
		ann, bob := paymentOf("0xann", "0x1"), paymentOf("0xbob", "0x2")
		if _, err := p.Put(t.Context(), putOf("k", "hello", ann)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Put(t.Context(), putOf("k", "mine", bob)); !errors.Is(err, ErrNotOwner) {
			t.Errorf("put: %v", err)
		}
		if _, err := p.Delete(t.Context(), DeleteRequest{"b", "k", big.NewInt(1), bob}); !errors.Is(err, ErrNotOwner) {
			t.Errorf("delete: %v", err)
		}
		if _, err := p.Delete(t.Context(), DeleteRequest{"b", "none", big.NewInt(1), bob}); !errors.Is(err, ErrNotFound) {
			t.Errorf("delete of nothing: %v", err)
		}
		if w.row(bob).State != 0 || w.chain.executed["0x2"] > 0 {
			t.Errorf("bob's payment was used: %+v", w.row(bob))
		}
		more := paymentOf("0xann", "0x3")
		r, err := p.Delete(t.Context(), DeleteRequest{"b", "k", big.NewInt(1), more})
		if err != nil || r.State != state.PaymentPaid || r.Kind != state.PaysDelete {
			t.Errorf("delete by its owner: %+v, %v", r, err)
		}
		if _, err := p.Owner(t.Context(), "b", "k"); !errors.Is(err, ErrNotFound) {
			t.Errorf("after the deletion: %v", err)
		}
		if _, err := p.Put(t.Context(), putOf("k", "mine", bob)); err != nil {
			t.Errorf("bob's put: %v", err)
		}
		after(time.Minute)
		var ended *EndedError
		if _, err := p.Delete(t.Context(), DeleteRequest{"b", "k", big.NewInt(1), paymentOf("0xbob", "0x4")}); !errors.As(err, &ended) {
			t.Errorf("delete after the end: %v", err)
		}
		if _, err := p.Put(t.Context(), putOf("k", "again ann's", paymentOf("0xann", "0x5"))); err != nil {
			t.Errorf("put after the end: %v", err)
		}
	})
}

// The object of a client that goes while the facilitator settles is stored, and its payment is recorded as paid.
func TestAClientThatGoesDuringTheSettlementHasItsObject(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, p *Payments) {
		ctx, cancel := context.WithCancel(t.Context())
		w.chain.settle = func(_ int, execute func() (Settlement, error)) (Settlement, error) {
			cancel()
			return execute()
		}
		pay := paymentOf("0xann", "0x1")
		if _, err := p.Put(ctx, putOf("k", "hello", pay)); err != nil {
			t.Error(err)
		}
		w.wantRow(pay, state.PaymentPaid, "")
		w.check("b/k", pay)
	})
}

// A client that goes before the settlement is not charged.
func TestAClientThatGoesBeforeTheSettlementPaysNothing(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, p *Payments) {
		ctx, cancel := context.WithCancel(t.Context())
		pay := paymentOf("0xann", "0x1")
		r := putOf("k", "hello", pay)
		r.Body.Check = func(objects.Sums) ([]state.Checksum, error) { cancel(); return nil, nil }
		if _, err := p.Put(ctx, r); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if w.row(pay).State != 0 || w.chain.settles > 0 {
			t.Errorf("the payment is %+v, %d settlements", w.row(pay), w.chain.settles)
		}
		w.told("false")
		w.check("b/k", pay)
	})
}

// The commit of a settled payment waits a minute for a majority; if that stays away for an hour, the payment becomes
// refundable.
func TestACommitWaitsForAMajority(t *testing.T) {
	for name, tc := range map[string]struct {
		away time.Duration
		want state.PaymentState
	}{"a minute": {time.Minute, state.PaymentPaid}, "an hour": {time.Hour, state.PaymentRefundable}} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, w *world, p *Payments) {
				pay := paymentOf("0xann", "0x1")
				w.chain.settle = func(_ int, execute func() (Settlement, error)) (Settlement, error) {
					w.state.Fail(state.ErrUnavailable)
					time.AfterFunc(tc.away, func() { w.state.Fail(nil) })
					return execute()
				}
				_, err := p.Put(t.Context(), putOf("k", "hello", pay))
				var refund *RefundError
				if (tc.want == state.PaymentPaid) != (err == nil) || err != nil && !errors.As(err, &refund) {
					t.Errorf("the answer is %v", err)
				}
				after(2 * time.Hour)
				if tc.want == state.PaymentRefundable {
					w.told("unknown")
					if err := p.Sweep(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				w.wantRow(pay, tc.want, "")
				w.check("b/k", pay)
			})
		})
	}
}

// A body that takes an hour, longer than the longest reservation, is stored: the payment is reserved all the time.
func TestAReservationIsRenewedWhileTheBodyArrives(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, p *Payments) {
		pay := paymentOf("0xann", "0x1")
		r := putOf("k", "hello", pay)
		r.Body.Reader = io.MultiReader(readerFunc(func([]byte) (int, error) {
			for range 60 {
				after(time.Minute)
				if err := p.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
				w.wantRow(pay, state.PaymentReserved, "")
			}
			if len(w.kept) > 0 {
				t.Error("content is stored before the body has arrived")
			}
			return 0, io.EOF
		}), r.Body.Reader)
		if _, err := p.Put(t.Context(), r); err != nil {
			t.Error(err)
		}
		w.check("b/k", pay)
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// A commit succeeds after the holders of the content were fenced while the facilitator settled.
func TestACommitRenewsTheHolders(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, p *Payments) {
		pay := paymentOf("0xann", "0x1")
		w.chain.settle = func(_ int, execute func() (Settlement, error)) (Settlement, error) {
			w.epoch = 5
			for _, n := range w.nodes {
				w.state.Apply(t, &state.Fence{Node: n.ID, Epoch: 5})
			}
			return execute()
		}
		if _, err := p.Put(t.Context(), putOf("k", "hello", pay)); err != nil {
			t.Error(err)
		}
		w.check("b/k", pay)
	})
}

// Receipts are listed in pages, the newest first, with the right sums, and bad cursors and limits are refused.
func TestReceiptsAreListedNewestFirst(t *testing.T) {
	inTime(t, func(t *testing.T, _ *world, p *Payments) {
		var want, got []string
		for _, nonce := range []string{"0x1", "0x2", "0x3", "0x4", "0x5"} {
			if _, err := p.Put(t.Context(), putOf("k"+nonce, "hello", paymentOf("0xann", nonce))); err != nil {
				t.Fatal(err)
			}
			want = append(want, nonce)
			after(time.Second)
		}
		slices.Reverse(want)
		for cursor := ""; ; {
			page, err := p.List(t.Context(), cursor, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Receipts {
				got = append(got, r.ID.Nonce)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		sums, err := p.Sums(t.Context())
		if err != nil || len(sums) != 1 || sums[0].State != state.PaymentPaid || sums[0].Count != 5 || sums[0].Amount != "5000" {
			t.Errorf("%+v, %v", sums, err)
		}
		for _, cursor := range []string{"!", "aGVsbG8", strings.Repeat("a", maxCursor+1)} {
			if _, err := p.List(t.Context(), cursor, 2); !errors.Is(err, state.ErrInvalid) {
				t.Errorf("cursor %q: %v", cursor, err)
			}
		}
		if _, err := p.List(t.Context(), "", MaxLimit+1); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("limit: %v", err)
		}
	})
}

// A paid pin has the CID, the bound and the end that were paid for, and a bad or refused payment makes no pin.
func TestAPaidPinEndsWithItsTime(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, p *Payments) {
		const content = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"
		pay := paymentOf("0xann", "0x1")
		pin := PinRequest{CID: content, Name: "film", TTL: time.Hour, MaxBytes: 300, Amount: big.NewInt(1000), Payment: pay}
		wrong := pin
		wrong.CID = "no CID"
		if _, err := p.Pin(t.Context(), wrong); !errors.Is(err, state.ErrInvalid) || w.row(pay).State != 0 {
			t.Errorf("without a CID: %v", err)
		}
		begun := time.Now()
		r, err := p.Pin(t.Context(), pin)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.FindPin(t.Context(), r.Pin)
		if err != nil || got.CID != content || got.Name != "film" || got.MaxBytes != 300 || got.Until.Time().Sub(begun) != time.Hour || got.Until != r.Until {
			t.Errorf("%+v, %v", got, err)
		}
		w.wantRow(pay, state.PaymentPaid, "")
		if _, err := p.Pin(t.Context(), pin); !errors.Is(err, ErrPaymentUsed) {
			t.Errorf("again: %v", err)
		}
		w.chain.settle = func(int, func() (Settlement, error)) (Settlement, error) {
			return Settlement{}, &Rejected{Reason: "insufficient_funds"}
		}
		pin.Payment = paymentOf("0xann", "0x2")
		var rejected *Rejected
		if _, err := p.Pin(t.Context(), pin); !errors.As(err, &rejected) {
			t.Errorf("refused: %v", err)
		}
		w.wantRow(pin.Payment, state.PaymentFailed, "insufficient_funds")
		view, release := w.state.LocalView()
		defer release()
		if pins, _, err := view.Totals(); err != nil || pins[state.Queued] != 1 {
			t.Errorf("%v pins, %v", pins, err)
		}
	})
}

// A node without a facilitator sells nothing, and sweeps and lists what others sell.
func TestANodeWithoutAFacilitatorSellsNothing(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, _ *Payments) {
		p := w.on("n2", w.state, nil)
		pay := paymentOf("0xann", "0x1")
		if _, err := p.Put(t.Context(), putOf("k", "hello", pay)); !errors.Is(err, state.ErrUnavailable) || w.row(pay).State != 0 {
			t.Errorf("put: %v", err)
		}
		if err := p.Supported(t.Context()); !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("supported: %v", err)
		}
		if _, err := p.List(t.Context(), "", 0); err != nil {
			t.Errorf("list: %v", err)
		}
		if err := p.Sweep(t.Context()); err != nil {
			t.Errorf("sweep: %v", err)
		}
	})
}
