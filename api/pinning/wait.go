package pinning

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
)

// MaxWait is the longest time that a request may wait for a change of a pin.
const MaxWait = time.Minute

// parseWait parses the query parameter wait of a GET of one pin, a duration such as 30s. It
// returns 0 without that parameter, and a 400 error for a malformed value or one above MaxWait.
// It ignores other parameters, and all but the first value.
func parseWait(raw string) (time.Duration, error) {
	if raw == "" {
		return 0, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return 0, badQuery()
	}
	given, ok := values["wait"]
	if !ok {
		return 0, nil
	}
	d, err := time.ParseDuration(given[0])
	if err != nil || d <= 0 || d > MaxWait {
		return 0, web.BadRequest("wait must be a time such as 30s, above 0s and at most %ds", int(MaxWait.Seconds()))
	}
	return d, nil
}

// wait waits until the status of the pin differs from record.Status, and returns the pin. After
// patience, or when the server stops, it returns the unchanged pin. Before it returns, it
// authenticates the request again, because the token may have been revoked meanwhile.
func (s *surface) wait(w http.ResponseWriter, r *http.Request, p accounts.Principal, record pins.Record, patience time.Duration) (pins.Record, error) {
	web.Operation(w, "GET /pins/{requestid}?wait") // its durations would distort those of the other requests
	limit := patience + 2*caseTimeout
	// The deadlines of the server are for answers that come at once. After the read
	// deadline net/http would treat the connection as closed. A writer without deadlines
	// needs no change.
	control := http.NewResponseController(w)
	for _, set := range []func(time.Time) error{control.SetReadDeadline, control.SetWriteDeadline} {
		if err := set(time.Now().Add(limit)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return record, fmt.Errorf("wait: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	enough, stop := context.WithTimeout(ctx, patience)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer stop() // cancel before patience ends
	watcher.Go(func() {
		select {
		case <-s.draining:
			stop()
		case <-enough.Done():
		}
	})
	record, err := s.pins.Wait(ctx, p.Account, record.ID, record.Status, enough.Done())
	if err != nil && undecided(err) {
		return record, err
	}
	judging, done := context.WithTimeout(r.Context(), caseTimeout)
	defer done()
	if _, refused := s.authenticate(judging, r); refused != nil {
		return record, fmt.Errorf("authenticate: %w", refused)
	}
	return record, err
}
