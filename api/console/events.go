package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Bounds of the event streams on each node. A browser needs one stream for all its tabs.
const (
	maxStreams        = 2048
	maxAccountStreams = 64
	// glanceEvery is the interval at which a stream checks the local state for changes.
	glanceEvery = time.Second
	// progressEvery is the number of checks after which a stream sends an event for an account with
	// unfinished pins even without a change, because the progress of pins is not in the replicated
	// state.
	progressEvery = 2
	// quietFor is the number of checks without an event after which a stream sends a comment, so that
	// proxies and browsers do not close the connection.
	quietFor = 20
)

// streams counts the open event streams.
type streams struct {
	mu        sync.Mutex // guards the fields below
	open      int
	byAccount map[state.AccountID]int
}

// enter counts a stream of an account until the caller calls leave. It returns state.ErrLimited
// if too many are open.
func (s *streams) enter(account state.AccountID) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= maxStreams || s.byAccount[account] >= maxAccountStreams {
		return nil, fmt.Errorf("%w: %d event streams are open, %d of this account", state.ErrLimited, s.open, s.byAccount[account])
	}
	if s.byAccount == nil {
		s.byAccount = map[state.AccountID]int{}
	}
	s.open++
	s.byAccount[account]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		if s.byAccount[account]--; s.byAccount[account] == 0 {
			delete(s.byAccount, account)
		}
	}, nil
}

// seenOf returns a fingerprint of the data about an account that pages show. It is equal on all
// nodes that have applied the last change. A node with a stale state returns another fingerprint,
// and the page then loads once more than necessary.
func seenOf(g accounts.Glance) string {
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, g.Quota, g.Pins, g.Changed) // a hash takes all
	return fmt.Sprintf("%x", h.Sum64())
}

// events serves GET /events, server-sent events (HTML Living Standard, section 9.2) that tell an
// open page when to load its contents again, by the local state. The event "account" has a
// fingerprint of the user's account as its data. The event "cluster" tells an administrator that
// a member has changed. The event "ended" is the last one after the end of the session. A stream
// begins with "account" and "cluster", so that the page knows whether it missed a change.
func (s *surface) events(c *call) error {
	leave, err := s.streams.enter(c.who.Account)
	if err != nil {
		return err
	}
	defer leave()
	ctx := c.r.Context()
	account, err := s.Accounts.Glance(ctx, c.session, accounts.Glance{})
	if err != nil {
		return err
	}
	header := c.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no") // nginx would hold events back
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	out := eventWriter{c.w, http.NewResponseController(c.w)}
	if err := out.send("account", seenOf(account)); err != nil {
		return err
	}
	tick := time.NewTicker(glanceEvery)
	defer tick.Stop()
	cluster, quiet := "", 0
	for turn := 1; ; turn++ {
		now, err := s.Accounts.Glance(ctx, c.session, account)
		switch {
		case errors.Is(err, state.ErrUnauthorized):
			return out.send("ended", "session")
		case err != nil:
			return err
		}
		quiet++
		if now.Differs(account) {
			err, quiet = out.send("account", seenOf(now)), 0
		} else if now.Unfinished() && turn%progressEvery == 0 {
			err, quiet = out.send("account", fmt.Sprint(seenOf(now), ".", turn)), 0
		}
		account = now
		if seen := s.clusterSeen(c, now.Admin); err == nil && seen != cluster {
			cluster, quiet = seen, 0
			err = out.send("cluster", seen)
		}
		if err == nil && quiet >= quietFor {
			quiet, err = 0, out.comment()
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		case <-s.Draining:
			return nil
		}
	}
}

// clusterSeen returns a fingerprint of the members as this node sees them, or "" if admin is
// false, because only administrators may see them.
func (s *surface) clusterSeen(c *call, admin bool) string {
	if !admin {
		return ""
	}
	status, err := s.Members.Status(c.r.Context())
	if err != nil {
		return ""
	}
	for i := range status.Peers { // which differ each time
		status.Peers[i].Silent, status.Peers[i].Skew = 0, 0
	}
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(status.Peers) // as a last resort it is the same always
	return fmt.Sprintf("%x", h.Sum64())
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// send writes an event. data must be one line that is not empty.
func (e eventWriter) send(event, data string) error {
	return e.write(fmt.Sprintf("event: %s\ndata: %s\n\n", event, data))
}

// comment writes a comment, which browsers ignore.
func (e eventWriter) comment() error { return e.write(":\n\n") }

func (e eventWriter) write(text string) error {
	// Not every writer has deadlines.
	_ = e.control.SetWriteDeadline(time.Now().Add(web.StallTimeout))
	if _, err := e.w.Write([]byte(text)); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if err := e.control.Flush(); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return nil
}
