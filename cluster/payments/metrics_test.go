package payments

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/prometheus/client_golang/prometheus"
)

// The metrics have the number of payments in each state, also 0, the amounts by network and asset, and the
// settlements without an answer. Without readable sums only the last is there.
func TestMetricsHaveTheSumsOfPayments(t *testing.T) {
	sums := []state.PaymentSum{
		{State: state.PaymentPaid, Network: "base", Asset: "0xa", Count: 2, Amount: "3000"},
		{State: state.PaymentPaid, Network: "base", Asset: "0xb", Count: 1, Amount: "1"},
		{State: state.PaymentRefundable, Network: "base", Asset: "0xa", Count: 3, Amount: strings.Repeat("9", 78)},
	}
	var failed error
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCollector(func() ([]state.PaymentSum, error) { return sums, failed }, func() int { return 2 }))
	gathered := func() map[string]float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = m.GetGauge().GetValue()
			}
		}
		return got
	}
	got := gathered()
	for name, want := range map[string]float64{
		"holdfast_payments_total reserved": 0, "holdfast_payments_total paid": 3, "holdfast_payments_total failed": 0, "holdfast_payments_total refundable": 3,
		"holdfast_payments_amount 0xa base paid": 3000, "holdfast_payments_amount 0xb base paid": 1, "holdfast_payments_amount 0xa base refundable": 1e78, "holdfast_payments_unanswered": 2,
	} {
		if is, there := got[name]; !there || is != want {
			t.Errorf("%s is %g, %t, want %g", name, is, there, want)
		}
	}
	if len(got) != 8 {
		t.Errorf("%d samples: %v", len(got), got)
	}
	failed = errors.New("no state")
	if got := gathered(); len(got) != 1 {
		t.Errorf("without sums: %v", got)
	}
}
