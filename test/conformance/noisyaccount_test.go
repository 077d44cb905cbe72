//go:build conformance

package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// What two accounts do on one node.
const (
	accountRate   = 10 // requests a second that the node allows an account, and at once; a busy machine sends more too
	noisyTimes    = 20 // as many as that are sent
	noisyClients  = 16
	noisyFor      = 5 * time.Second
	modestRate    = 5 // requests a second of the other account
	modestClients = 4
)

// sent is what an account sent and was answered.
type sent struct {
	mu       sync.Mutex
	accepted int
	limited  []harness.Response
	took     []time.Duration // of what was accepted
	errs     []error
}

func (s *sent) at(share float64) time.Duration { return quantile(s.took, share) }

// send has some clients send lists and pins in turn, so many a second all
// together, as long as they can, and returns what came of it and after how long.
func send(t *testing.T, n *harness.Node, token string, clients, rate int) (*sent, time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), noisyFor)
	defer cancel()
	out := &sent{}
	turns := make(chan int)
	var all errgroup.Group
	for range clients {
		all.Go(func() error {
			for turn := range turns {
				method, path, body := http.MethodGet, "/pins?limit=1", ""
				if turn%2 == 0 {
					method, path, body = http.MethodPost, "/pins", `{"cid":"`+nowhere().String()+`"}`
				}
				began := time.Now()
				r, err := n.Pins(token).Do(t.Context(), method, path, nil, []byte(body))
				out.note(r, err, time.Since(began))
			}
			return nil
		})
	}
	began := time.Now()
	every := time.NewTicker(time.Second / time.Duration(rate))
	defer every.Stop()
	for turn := 0; ctx.Err() == nil; turn++ {
		select {
		case <-every.C:
		case <-ctx.Done():
			continue
		}
		select {
		case turns <- turn:
		case <-ctx.Done():
		}
	}
	close(turns)
	_ = all.Wait() // never fails
	return out, time.Since(began)
}

func (s *sent) note(r harness.Response, err error, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.errs = append(s.errs, err)
	case r.Status == http.StatusTooManyRequests:
		s.limited = append(s.limited, r)
	case r.Status == http.StatusOK, r.Status == http.StatusAccepted:
		s.accepted++
		s.took = append(s.took, took)
	default:
		s.errs = append(s.errs, fmt.Errorf("%d %s", r.Status, r.Body))
	}
}

// TestANoisyAccountIsHeldToItsRate promises that an account that sends many times its rate is told to wait, and that
// another one on the same node never is (A55). How long the other waits is logged; test/bench, group noisy, measures
// it.
func TestANoisyAccountIsHeldToItsRate(t *testing.T) {
	longForm(t)
	t.Parallel()
	c := harness.Start(t, harness.Options{Env: []string{
		fmt.Sprintf("HOLDFAST_API_ACCOUNT_RATE=%d", accountRate), fmt.Sprintf("HOLDFAST_API_ACCOUNT_BURST=%d", accountRate),
	}})
	n := c.Nodes[0]
	noisy, modest := n.UserKey("noisy@example.org").Token, n.UserKey("modest@example.org").Token
	alone, _ := send(t, n, modest, modestClients, modestRate)
	var beside *sent
	var both sync.WaitGroup
	both.Go(func() { beside, _ = send(t, n, modest, modestClients, modestRate) })
	much, took := send(t, n, noisy, noisyClients, noisyTimes*accountRate)
	both.Wait()

	if err := errors.Join(much.errs...); err != nil {
		t.Errorf("the noisy account: %v", err)
	}
	if most := accountRate + int(took.Seconds()*accountRate) + 1; much.accepted == 0 || much.accepted > most {
		t.Errorf("%d of the noisy account's requests are taken in %s, at most %d are allowed", much.accepted, took, most)
	}
	if len(much.limited) == 0 {
		t.Error("nobody was told to wait")
	}
	for _, r := range much.limited {
		wantLimited(t, r)
	}
	for name, s := range map[string]*sent{"alone": alone, "beside": beside} {
		if err := errors.Join(s.errs...); err != nil || len(s.limited) > 0 || s.accepted == 0 {
			t.Errorf("the modest account, %s: %d taken, %d to wait, %v", name, s.accepted, len(s.limited), err)
		}
	}
	busy, _ := os.ReadFile("/proc/loadavg") // for people
	t.Logf("in %s the noisy account sent %d, %d were taken; the modest one waited p50 %s, p99 %s alone and p50 %s, p99 %s beside it; load average %s",
		took.Round(time.Second), much.accepted+len(much.limited), much.accepted, alone.at(0.5), alone.at(0.99), beside.at(0.5), beside.at(0.99), strings.TrimSpace(string(busy)))
}

// TestAnEndedKeyOfANoisyAccountIsNotServed promises that a key that is revoked on another node while its account is
// above its rate is served by neither API any more. The key is told to wait, or that it has ended. A second account
// works all the time.
func TestAnEndedKeyOfANoisyAccountIsNotServed(t *testing.T) {
	longForm(t)
	t.Parallel()
	const rate = 20
	c := harness.Start(t, harness.Options{Env: []string{
		fmt.Sprintf("HOLDFAST_API_ACCOUNT_RATE=%d", rate), fmt.Sprintf("HOLDFAST_API_ACCOUNT_BURST=%d", rate),
	}})
	n, elsewhere := c.Nodes[0], c.Nodes[1]
	key := n.UserKey("ends@example.org")
	another, modest := n.Key("ends@example.org").Token, n.UserKey("stays@example.org").Token
	gateway := &objects{t: t, cluster: c}
	if r := gateway.with(another).callOn(n, http.MethodPut, "/noisy", nil); r.Status != http.StatusOK {
		t.Fatalf("a bucket: %d %s", r.Status, r.Body)
	}
	// Clients of the account send as much as they can, by both keys and both APIs.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var revoked atomic.Bool
	var served, told, ended atomic.Int64
	var all errgroup.Group
	for i := range 8 {
		all.Go(func() error {
			for turn := i; ctx.Err() == nil; turn++ {
				token := key.Token
				if turn%4 == 3 {
					token = another
				}
				late := revoked.Load() // before the request is sent
				status, err := ask(n, gateway, token, turn/4)
				switch {
				case err != nil:
					return err
				case status == http.StatusTooManyRequests:
					told.Add(1)
				case status/100 == 2 && (token == another || !late):
					served.Add(1)
				case !late && (status == http.StatusUnauthorized || status == http.StatusForbidden): // under way meanwhile
				case status == http.StatusUnauthorized, status == http.StatusForbidden:
					ended.Add(1)
				default:
					return fmt.Errorf("answered %d; revoked: %t", status, late && token == key.Token)
				}
			}
			return nil
		})
	}
	harness.Eventually(t, time.Minute, "the account is above its rate", func() (bool, error) { return served.Load() > 0 && told.Load() > 100, nil })
	elsewhere.CLI("key", "revoke", key.ID)
	revoked.Store(true)
	before := told.Load()
	harness.Eventually(t, time.Minute, "the key is told that it has ended", func() (bool, error) {
		r, err := n.Pins(modest).Do(t.Context(), http.MethodGet, "/pins?limit=1", nil, nil)
		if err == nil && r.Status != http.StatusOK && r.Status != http.StatusTooManyRequests {
			err = fmt.Errorf("the other account: %d %s", r.Status, r.Body)
		}
		return ended.Load() > 100 && told.Load() > before, err
	})
	cancel()
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	for i := range 4 {
		if status, err := ask(n, gateway, key.Token, i); err != nil || status != http.StatusUnauthorized && status != http.StatusForbidden {
			t.Errorf("at the end: %d, %v", status, err)
		}
	}
}

// ask sends one of four kinds of requests to a node; the gateway's SlowDown counts
// as 429.
func ask(n *harness.Node, gateway *objects, token string, kind int) (int, error) {
	method, path, body := http.MethodGet, "/pins?limit=1", ""
	switch kind % 4 {
	case 1:
		method, path, body = http.MethodPost, "/pins", `{"cid":"`+nowhere().String()+`"}`
	case 2, 3:
		method, path = []string{http.MethodGet, http.MethodPut}[kind%2], []string{"/noisy", "/noisy/key"}[kind%2]
		r, err := gateway.with(token).tryOn(n, method, path, nil)
		if err == nil && r.Status == http.StatusServiceUnavailable && strings.Contains(string(r.Body), "<Code>SlowDown<") {
			if r.Header.Get("Retry-After") == "" {
				return 0, errors.New("SlowDown without Retry-After")
			}
			return http.StatusTooManyRequests, nil
		}
		return r.Status, err
	}
	r, err := n.Pins(token).Do(gateway.t.Context(), method, path, nil, []byte(body))
	if err == nil && r.Status == http.StatusTooManyRequests && r.Header.Get("Retry-After") == "" {
		err = errors.New("429 without Retry-After")
	}
	return r.Status, err
}
