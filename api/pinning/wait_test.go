package pinning

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A wait must be a duration above 0s and at most 60s, and another value gets 400.
func TestWaitIsADurationWithinItsBounds(t *testing.T) {
	w := newWorld(t)
	w.do(request{method: "POST", path: "/pins", body: `{"cid":"` + cidOne + `"}`, token: w.alice})
	id := "00000000-0000-4000-8000-000000000001"
	for _, bad := range []string{"", "30", "x", "0s", "-1s", "61s", "1m1s", "1h", "9e9s", "1s;2s", "%00", "+1s", "NaNs"} {
		rec := w.do(request{method: "GET", path: "/pins/" + id + "?wait=" + bad, token: w.alice})
		if rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), `"BAD_REQUEST"`) {
			t.Errorf("wait=%s: %d %s", bad, rec.Code, rec.Body)
		}
	}
	for _, good := range []string{"?wait=1ms", "?wait=1ms&wait=x", "?other=x", "?wait=1us"} {
		if rec := w.do(request{method: "GET", path: "/pins/" + id + good, token: w.alice}); rec.Code != http.StatusOK {
			t.Errorf("%s: %d %s", good, rec.Code, rec.Body)
		}
	}
	if rec := w.do(request{method: "GET", path: "/pins/unknown?wait=1m", token: w.alice}); rec.Code != http.StatusNotFound {
		t.Errorf("an unknown id: %d %s", rec.Code, rec.Body)
	}
}

// waiting returns a surface over f with a judge of keys.
func waiting(t *testing.T, f *fake, draining <-chan struct{}, judge func() error) http.Handler {
	t.Helper()
	h, err := New(Options{
		Pins: f, Health: f, Sessions: f, DefaultStatus: []string{"pinned"}, Draining: draining, Logger: slog.New(slog.DiscardHandler),
		Authenticate: func(ctx context.Context, r *http.Request) (accounts.Principal, error) {
			p, _ := anyone(ctx, r)
			return p, judge()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A request that waits for a pin is answered at the end of its time or of the server, ends when its client
// leaves, and is 401 if its key is revoked meanwhile.
func TestWaitEndsWithPatienceTheServerOrTheClient(t *testing.T) {
	queued := pins.Record{Pin: state.Pin{ID: "r", Status: state.Queued}}
	pinned := pins.Record{Pin: state.Pin{ID: "r", Status: state.Pinned}}
	for _, tc := range []struct {
		name   string
		record pins.Record
		end    string // what ends the wait
		body   string // part of the answer
		took   time.Duration
	}{
		{"patience", queued, "", `"status":"pinned"`, 30 * time.Second},
		{"the server ends", queued, "drain", `"status":"pinned"`, 2 * time.Second},
		{"the client goes", queued, "leave", "", 2 * time.Second},
		{"the key is revoked", queued, "revoke", `"UNAUTHORIZED"`, 30 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				draining := make(chan struct{})
				var revoked atomic.Bool
				f := &fake{record: tc.record, changed: pinned, entered: make(chan struct{}, 1)}
				h := waiting(t, f, draining, func() error {
					if revoked.Load() {
						return state.ErrUnauthorized
					}
					return nil
				})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				rec := httptest.NewRecorder()
				done := make(chan struct{})
				began := time.Now()
				go func() {
					defer close(done)
					h.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "GET", "/pins/r?wait=30s", nil))
				}()
				<-f.entered
				if tc.end != "" {
					<-time.After(2 * time.Second) // of the bubble's clock
				}
				switch tc.end {
				case "drain":
					close(draining)
				case "leave":
					leave()
				case "revoke":
					revoked.Store(true)
				}
				<-done
				if took := time.Since(began); took != tc.took || !strings.Contains(rec.Body.String(), tc.body) {
					t.Errorf("after %s: %d %s", took, rec.Code, rec.Body)
				}
			})
		})
	}
}

// A request that may not wait because too many do is answered with 429 and Retry-After.
func TestAboveTheBoundOfWaitersTheAnswerIs429(t *testing.T) {
	f := &fake{record: pins.Record{Pin: state.Pin{ID: "r", Status: state.Queued}}}
	h, err := New(Options{Pins: limitedFake{f}, Authenticate: anyone, Health: f, DefaultStatus: []string{"pinned"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	rec := do(h, request{method: "GET", path: "/pins/r?wait=30s"})
	if rec.Code != http.StatusTooManyRequests || rec.Header().Get("Retry-After") == "" || !strings.Contains(rec.Body.String(), `"error":"RATE_LIMITED"`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

// limitedFake has too many waiters.
type limitedFake struct{ *fake }

func (limitedFake) Wait(context.Context, state.AccountID, state.RequestID, state.Status, <-chan struct{}) (pins.Record, error) {
	return pins.Record{}, fmt.Errorf("wait: %w", state.ErrLimited)
}
