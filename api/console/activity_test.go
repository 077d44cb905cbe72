package console

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/internal/activity"
)

// An administrator chooses the kinds of events in the address of the page, and only those are shown. The page
// names its node, has sizes with a unit, and leaves out what has no value.
func TestActivityIsChosenByKind(t *testing.T) {
	var recent activity.Log
	w, _ := administrator(t)
	b := w.another(func(o *Options) { o.Activity = &recent }).browser()
	b.signIn("alice")
	log := slog.New(recent.Handler(slog.DiscardHandler))
	log.Info("leader changed", "leader", "n2")
	log.Warn("refused at the cluster port", "addr", "203.0.113.9")
	log.Error("disk is full: writes wait for room")
	log.Info("session begun")
	log.Info("allowance changed", "bytes", uint64(2<<30), "nothing", "")
	for _, tc := range []struct {
		query       string
		has, hasNot []string
	}{
		{"", []string{"leader changed", "refused at the cluster port", "disk is full", "session begun", "2 GiB", `href="/cluster/nodes/`}, []string{" checked", "2147483648", "nothing"}},
		{"?kind=elections", []string{"leader changed", `value="elections" checked`}, []string{"refused at", "disk is full", "session begun", `value="disks" checked`}},
		{"?kind=elections&kind=disks", []string{"leader changed", "disk is full", `value="disks" checked`}, []string{"refused at", "session begun"}},
		{"?kind=elections&kind=disks&only=troubles", []string{"disk is full", `value="troubles" checked`}, []string{"leader changed", "refused at"}},
		{"?kind=repairs", []string{"No event of these kinds since the node started."}, []string{"leader changed", "<table"}},
		{"?only=troubles", []string{"refused at the cluster port", "disk is full"}, []string{"leader changed", "session begun"}},
	} {
		status, body := b.get("/cluster/activity" + tc.query)
		if status != http.StatusOK {
			t.Errorf("%q: %d", tc.query, status)
		}
		for _, want := range tc.has {
			if !strings.Contains(body, want) {
				t.Errorf("%q does not show %q: %s", tc.query, want, body)
			}
		}
		for _, other := range tc.hasNot {
			if strings.Contains(body, other) {
				t.Errorf("%q shows %q", tc.query, other)
			}
		}
	}
	if status, _ := b.get("/cluster/activity?kind=weather"); status != http.StatusBadRequest {
		t.Errorf("a kind that does not exist is answered with %d", status)
	}
	for _, kind := range activity.Kinds() {
		if kindNames[kind] == "" {
			t.Errorf("%s has no name", kind)
		}
	}
}
