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

// parseWait reads the query of a GET of one pin: wait is a duration as Go writes
// it. Other parameters are ignored, and of a repeated one the first counts.
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

// wait returns the pin of record when it has changed, or as it is after patience.
// A key may be revoked meanwhile, so it is judged again.
func (s *surface) wait(w http.ResponseWriter, r *http.Request, p accounts.Principal, record pins.Record, patience time.Duration) (pins.Record, error) {
	web.Operation(w, "GET /pins/{requestid}?wait") // no such time as the others take
	limit := patience + 2*caseTimeout
	// The server's own bounds are those of answers that come at once. Past the
	// read deadline it would take the client for gone. A writer without deadlines
	// has none that could end this.
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
	defer stop() // before that
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
