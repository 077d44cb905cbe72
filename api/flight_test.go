package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// The end of a server waits for its handlers for cutTimeout at most, counts those that are left, and later
// requests get 503.
func TestTheEndWaitsForHandlers(t *testing.T) {
	for _, tc := range []struct {
		name string
		took time.Duration // of the handler
		left int
	}{
		{"none", 0, 0},
		{"one that notices", time.Second, 0},
		{"one that does not", time.Minute, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFlight()
				h := f.count(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-time.After(tc.took) }))
				done := make(chan struct{})
				go func() {
					defer close(done)
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
				}()
				synctest.Wait()
				if tc.took == 0 {
					<-done
				}
				started := time.Now()
				if left := f.end(cutTimeout); left != tc.left || time.Since(started) != min(tc.took, cutTimeout) {
					t.Errorf("%d left after %v", left, time.Since(started))
				}
				late := httptest.NewRecorder()
				if h.ServeHTTP(late, httptest.NewRequest("GET", "/", nil)); late.Code != http.StatusServiceUnavailable {
					t.Errorf("a request after the end: %d", late.Code)
				}
				<-done
			})
		})
	}
}
