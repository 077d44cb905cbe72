package payments

import (
	"context"
	"encoding/hex"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
)

// A settlement that could not be recorded for lack of a majority is recorded when there is one again, without a
// restart of the node.
func TestASettlementIsRecordedWhenThereIsAMajorityAgain(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, p *Payments) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		pay := paymentOf("0xann", "0x1")
		w.chain.settle = func(_ int, execute func() (Settlement, error)) (Settlement, error) {
			done, err := execute()
			w.state.Fail(state.ErrUnavailable)
			return done, err
		}
		var owed *RefundError
		if _, err := p.Put(t.Context(), putOf("k", "hello", pay)); !errors.As(err, &owed) || owed.Payment.Transaction != "0x7a0x1" {
			t.Errorf("without a majority: %v", err)
		}
		w.state.Fail(nil)
		w.state.Apply(t, &state.SweepPayments{Now: state.MillisOf(time.Now()) + state.PaymentTimeout})
		w.wantRow(pay, state.PaymentRefundable, state.SweptReason)
		after(runEvery + longestPause)
		if got := w.row(pay); got.Transaction != "0x7a0x1" || got.Reason != recalledReason {
			t.Errorf("the record is %+v", got)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.check("b/k", pay)
	})
}

// A node that stops between settlement and commit knows the transaction at its next start, and makes the payment
// refundable with it.
func TestANodeThatStoppedKnowsItsSettlements(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, _ *Payments) {
		pay, kept := paymentOf("0xann", "0x1"), new(disk)
		w.chain.settle = func(_ int, execute func() (Settlement, error)) (Settlement, error) {
			done, err := execute()
			w.state.Fail(state.ErrUnavailable) // no majority from now on
			return done, err
		}
		p := w.onDisk("n1", w.state, w.chain, kept)
		if _, err := p.Put(t.Context(), putOf("k", "hello", pay)); err == nil {
			t.Fatal("the put succeeded without a majority")
		}
		if len(kept.entries) != 1 || kept.synced != 1 {
			t.Fatalf("the journal has %d entries, flushed %d times", len(kept.entries), kept.synced)
		}
		again := w.onDisk("n1", w.state, w.chain, kept)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- again.Run(ctx) }()
		after(time.Minute)
		if len(kept.entries) != 1 {
			t.Error("the journal forgot a settlement that the state does not have")
		}
		w.state.Fail(nil)
		after(runEvery + longestPause)
		w.wantRow(pay, state.PaymentRefundable, recalledReason)
		if got := w.row(pay).Transaction; got != "0x7a0x1" || len(kept.entries) != 0 {
			t.Errorf("the transaction is %q, and the journal has %d entries", got, len(kept.entries))
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.check("b/k", pay)
	})
}

// The journal is empty once the state has the outcome, and a paid payment stays paid whatever the journal says.
func TestTheJournalForgetsWhatTheStateHas(t *testing.T) {
	inTime(t, func(t *testing.T, w *world, _ *Payments) {
		kept := new(disk)
		p := w.onDisk("n1", w.state, w.chain, kept)
		pay := paymentOf("0xann", "0x1")
		if _, err := p.Put(t.Context(), putOf("k", "hello", pay)); err != nil || len(kept.entries) != 0 || kept.synced != 1 {
			t.Errorf("%v; %d entries, flushed %d times", err, len(kept.entries), kept.synced)
		}
		p.note(new(w.row(pay)), "0x7b")
		kept.Set("damaged", []byte("nonsense"))
		w.onDisk("n1", w.state, w.chain, kept).recall(t.Context())
		if len(kept.entries) != 0 {
			t.Errorf("%d entries are left", len(kept.entries))
		}
		w.wantRow(pay, state.PaymentPaid, "")
		if got := w.row(pay).Transaction; got != "0x7a0x1" {
			t.Errorf("the transaction became %q", got)
		}
		w.check("b/k", pay)
	})
}

// The entries of the journal have the form of the golden file, and one with a transaction out of bounds is not kept.
func TestEntriesOfTheJournalKeepTheirForm(t *testing.T) {
	kept := new(disk)
	p := New(Options{Journal: kept})
	row := state.Payment{
		ID: state.PaymentID{Network: "base-sepolia", Asset: "0xa55e7", Payer: "0xann", Nonce: "0x1"}, Kind: state.PaysObject, Amount: "1000", PayTo: "0x9a7ee",
		Request: "attempt", Node: "n1", Object: "b/k", Bytes: 5, Seconds: 60, Reserved: 1000, ValidBefore: 2000,
	}
	p.note(&row, "0x7a")
	var lines []string
	for key, entry := range kept.entries {
		lines = append(lines, strings.ReplaceAll(key, "\n", " ")+" "+hex.EncodeToString(entry))
	}
	if left := New(Options{Journal: kept}).left; len(left) != 1 || left[0].payment != row || left[0].transaction != "0x7a" {
		t.Errorf("read again: %+v", left)
	}
	p.note(&row, strings.Repeat("x", maxTransaction+1))
	p.noteAsked(&settled{payment: state.Payment{ID: state.PaymentID{Nonce: "0x2"}}, question: question{1, []byte(`{"a":1}`), []byte(`{"b":2}`)}})
	for key, entry := range kept.entries {
		if strings.HasSuffix(key, "0x2") {
			lines = append(lines, strings.ReplaceAll(key, "\n", " ")+" "+hex.EncodeToString(entry))
			kept.Delete(key)
		}
	}
	goldentest.File(t, filepath.Join("testdata", "journal.txt"), []byte(strings.Join(lines, "\n")+"\n"))
	if left := New(Options{Journal: kept}).left; len(left) != 1 || left[0].transaction != "0x7a" {
		t.Errorf("a transaction out of bounds was kept: %+v", left)
	}
}
