package payments

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// questioned counts what a facilitator is asked to settle, and answers by answer.
type questioned struct {
	*chain
	asked  []Payment
	answer func(n int, p *Payment) (Settlement, error)
}

// Settle implements Facilitator.
func (q *questioned) Settle(_ context.Context, p *Payment) (Settlement, error) {
	q.asked = append(q.asked, *p)
	return q.answer(len(q.asked), p)
}

// signedOf returns a payment whose authorization ends after a time.
func signedOf(nonce string, valid time.Duration) Payment {
	p := paymentOf("0xann", nonce)
	p.Payload, p.Requirements = json.RawMessage(`{"signed":"`+nonce+`"}`), json.RawMessage(`{"due":"1000"}`)
	p.ValidBefore = time.Now().Add(valid).Unix()
	return p
}

// A node that is killed before the facilitator has answered makes the payment refundable at its next start, and asks
// for the transaction only when the authorization is not valid any more. The question has the same words as the
// first. The row gets the transaction that the facilitator tells.
func TestAKilledNodeAsksForTheTransactionWhenItCannotPayAnyMore(t *testing.T) {
	for name, tc := range map[string]struct {
		valid  time.Duration
		answer func(w *world, n int, p *Payment) (Settlement, error) // of the second question on
		asked  int
		want   string // transaction
	}{
		"it tells": {
			valid: 5 * time.Minute, asked: 2, want: "0x7a",
			answer: func(*world, int, *Payment) (Settlement, error) { return Settlement{Transaction: "0x7a"}, nil },
		},
		"it tells when it is there again": {
			valid: 5 * time.Minute, asked: 4, want: "0x7a",
			answer: func(_ *world, n int, _ *Payment) (Settlement, error) {
				if n < 4 {
					return Settlement{}, errCut
				}
				return Settlement{Transaction: "0x7a"}, nil
			},
		},
		"it does not know": {
			valid: 5 * time.Minute, asked: 2,
			answer: func(*world, int, *Payment) (Settlement, error) {
				return Settlement{}, &Rejected{Reason: "invalid_transaction_state"}
			},
		},
		"it never answers": {
			valid: 5 * time.Minute, asked: 1 + int(askFor/askPause),
			answer: func(*world, int, *Payment) (Settlement, error) { return Settlement{}, errCut },
		},
		"an authorization that hardly ends": {valid: 48 * time.Hour, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, w *world, _ *Payments) {
				pay, kept := signedOf("0x1", tc.valid), new(disk)
				f := &questioned{chain: w.chain, answer: func(_ int, p *Payment) (Settlement, error) {
					_, _ = w.chain.execute(p)
					runtime.Goexit() // the asking node is killed
					return Settlement{}, nil
				}}
				var killed sync.WaitGroup
				killed.Go(func() { _, _ = w.onDisk("n1", w.state, f, kept).Put(t.Context(), putOf("k", "hello", pay)) })
				killed.Wait()
				w.wantRow(pay, state.PaymentReserved, "")
				if len(kept.entries) != 1 || kept.synced != 0 {
					t.Fatalf("%d entries, flushed %d times", len(kept.entries), kept.synced)
				}
				end := time.Unix(pay.ValidBefore, 0)
				f.answer = func(n int, p *Payment) (Settlement, error) {
					if !time.Now().After(end) {
						t.Error("the facilitator is asked while the authorization is valid")
					}
					return tc.answer(w, n, p)
				}
				again := w.onDisk("n1", w.state, f, kept)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- again.Run(ctx) }()
				after(runEvery + time.Second)
				w.wantRow(pay, state.PaymentRefundable, stoppedReason)
				if w.row(pay).Transaction != "" || tc.asked > 1 && again.Unanswered() != 1 {
					t.Errorf("after the start: %+v, %d without an answer", w.row(pay), again.Unanswered())
				}
				after(askFor + time.Hour)
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				want := stoppedReason
				if tc.want != "" {
					want = toldLateReason
				}
				w.wantRow(pay, state.PaymentRefundable, want)
				if got := w.row(pay).Transaction; got != tc.want || len(f.asked) != tc.asked || again.Unanswered() != 0 || len(kept.entries) != 0 {
					t.Errorf("transaction %q; asked %d times, want %d; %d without an answer, %d entries", got, len(f.asked), tc.asked, again.Unanswered(), len(kept.entries))
				}
				for _, p := range f.asked[1:] {
					if p.ID() != pay.ID() || p.PayTo != pay.PayTo || p.X402Version != 1 || string(p.Payload) != string(pay.Payload) || string(p.Requirements) != string(pay.Requirements) {
						t.Errorf("the second question is %+v", p)
					}
				}
				w.check("b/k", pay)
			})
		})
	}
}

// A node without an answer of the facilitator learns the transaction later, and does not ask about a payment that
// failed.
func TestALivingNodeAsksForTheTransactionLater(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, _ *Payments) {
		kept := new(disk)
		f := &questioned{chain: w.chain, answer: func(n int, p *Payment) (Settlement, error) {
			if n <= settleTries {
				return Settlement{}, errCut
			}
			return Settlement{Transaction: "0x7a" + p.Nonce}, nil
		}}
		p := w.onDisk("n1", w.state, f, kept)
		pay := signedOf("0x1", 5*time.Minute)
		if _, err := p.Put(t.Context(), putOf("k", "hello", pay)); !errors.Is(err, ErrFacilitator) {
			t.Fatal(err)
		}
		w.wantRow(pay, state.PaymentRefundable, unansweredReason)
		p.recall(t.Context())
		if len(f.asked) != settleTries || p.Unanswered() != 1 || len(kept.entries) != 1 {
			t.Errorf("asked %d times, %d without an answer, %d entries", len(f.asked), p.Unanswered(), len(kept.entries))
		}
		after(6 * time.Minute)
		p.recall(t.Context())
		w.wantRow(pay, state.PaymentRefundable, toldLateReason)
		if got := w.row(pay).Transaction; got != "0x7a0x1" || p.Unanswered() != 0 || len(kept.entries) != 0 {
			t.Errorf("transaction %q, %d without an answer, %d entries", got, p.Unanswered(), len(kept.entries))
		}
		no := signedOf("0x2", 5*time.Minute)
		f.answer = func(int, *Payment) (Settlement, error) { return Settlement{}, &Rejected{Reason: "insufficient_funds"} }
		_, _ = p.Put(t.Context(), putOf("k", "hello", no))
		w.wantRow(no, state.PaymentFailed, "insufficient_funds")
		kept.Set("lost deletion", nil)
		p.noteAsked(&settled{payment: w.row(no)})
		again := w.onDisk("n1", w.state, f, kept)
		again.recall(t.Context())
		w.wantRow(no, state.PaymentFailed, "insufficient_funds")
		if len(kept.entries) != 0 {
			t.Errorf("%d entries are left", len(kept.entries))
		}
	})
}

// One pass asks the facilitator at most maxQuestions questions, and a question that is too long is not kept.
func TestQuestionsAreBounded(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, _ *Payments) {
		f := &questioned{chain: w.chain, answer: func(int, *Payment) (Settlement, error) { return Settlement{}, errCut }}
		kept := new(disk)
		p := w.onDisk("n1", w.state, f, kept)
		long := signedOf("0xlong", time.Hour)
		long.Payload = json.RawMessage(`"` + strings.Repeat("x", maxEntry) + `"`)
		pays := []Payment{long}
		for n := range maxQuestions + 2 {
			pays = append(pays, signedOf("0x"+strings.Repeat("1", n+1), 10*time.Minute))
		}
		for i := range pays {
			_, _ = p.Put(t.Context(), putOf("k", "hello", pays[i]))
			w.wantRow(pays[i], state.PaymentRefundable, unansweredReason)
		}
		again := w.onDisk("n1", w.state, f, kept)
		again.recall(t.Context())
		if got := again.Unanswered(); got != len(pays)-1 {
			t.Errorf("%d settlements are asked about, want %d", got, len(pays)-1)
		}
		after(time.Hour)
		f.asked, f.answer = nil, func(_ int, p *Payment) (Settlement, error) { return Settlement{Transaction: "0x7a" + p.Nonce}, nil }
		again.recall(t.Context())
		if len(f.asked) != maxQuestions {
			t.Errorf("%d questions in one pass", len(f.asked))
		}
		again.recall(t.Context())
		if len(f.asked) != len(pays)-1 || again.Unanswered() != 0 || slices.ContainsFunc(pays[1:], func(p Payment) bool { return w.row(p).Transaction == "" }) {
			t.Errorf("%d questions, %d without an answer", len(f.asked), again.Unanswered())
		}
	})
}
