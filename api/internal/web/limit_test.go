package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// The client of a request is the last forwarded address that is no trusted proxy, or the peer if the peer is
// none or the header is bad.
func TestClientBehindProxies(t *testing.T) {
	l := NewLimits(Rate{}, Rate{}, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fe80::/10")}, nil)
	for _, tc := range []struct{ remote, forwarded, want string }{
		{"192.0.2.1:5", "198.51.100.1", "192.0.2.1"}, // no proxy of ours
		{"10.0.0.1:5", "", "10.0.0.1"},
		{"10.0.0.1:5", "198.51.100.1", "198.51.100.1"},
		{"10.0.0.1:5", "1.1.1.1, 198.51.100.1", "198.51.100.1"},
		{"10.0.0.1:5", "198.51.100.1, 10.9.9.9", "198.51.100.1"},
		{"10.0.0.1:5", "10.9.9.8, 10.9.9.9", "10.9.9.8"},
		{"10.0.0.1:5", "nonsense", "10.0.0.1"},
		{"10.0.0.1:5", "198.51.100.1, nonsense", "10.0.0.1"},
		{"10.0.0.1:5", ",,", "10.0.0.1"},
		{"10.0.0.1:5", "198.51.100.1:4711", "198.51.100.1"},
		{"[::1]:5", "[2001:db8::1]:4711", "2001:db8::1"},
		{"[::1]:5", "2001:db8::1", "2001:db8::1"},
		{"[::ffff:10.0.0.1]:5", "198.51.100.1", "198.51.100.1"},
		{"[fe80::1%eth0]:5", "198.51.100.1", "198.51.100.1"},
		{"[fe80::1%eth0]:5", "198.51.100.1, [fe80::2%eth0]:4711", "198.51.100.1"},
		{"10.0.0.1:5", strings.Repeat("10.0.0.2,", 10_000) + "10.0.0.3", "10.0.0.2"},
		{"@", "198.51.100.1", "invalid IP"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = tc.remote
		if tc.forwarded != "" {
			r.Header["X-Forwarded-For"] = []string{tc.forwarded}
		}
		if got := l.Client(r).String(); got != tc.want {
			t.Errorf("%s, forwarded for %.40q: %s, want %s", tc.remote, tc.forwarded, got, tc.want)
		}
	}
}

// A request has the scheme https over TLS, or if a trusted proxy says so last in X-Forwarded-Proto.
func TestSchemeBehindProxies(t *testing.T) {
	l := NewLimits(Rate{}, Rate{}, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fe80::/10")}, nil)
	for _, tc := range []struct {
		limits *Limits
		remote string
		tls    bool
		said   []string
		want   string
	}{
		{l, "192.0.2.1:5", false, []string{"https"}, "http"}, // no proxy of ours
		{l, "192.0.2.1:5", true, nil, "https"},
		{l, "10.0.0.1:5", false, nil, "http"},
		{l, "10.0.0.1:5", false, []string{"https"}, "https"},
		{l, "10.0.0.1:5", false, []string{"HTTPS"}, "https"},
		{l, "10.0.0.1:5", false, []string{"http"}, "http"},
		{l, "10.0.0.1:5", true, []string{"http"}, "https"},
		{l, "10.0.0.1:5", false, []string{"https, http"}, "http"},
		{l, "10.0.0.1:5", false, []string{"http", "https"}, "https"},
		{l, "10.0.0.1:5", false, []string{"javascript"}, "http"},
		{l, "[::ffff:10.0.0.1]:5", false, []string{"https"}, "https"},
		{l, "[fe80::1%eth0]:5", false, []string{"https"}, "https"},
		{l, "@", false, []string{"https"}, "http"}, // a Unix socket
		{nil, "10.0.0.1:5", false, []string{"https"}, "http"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = tc.remote
		if tc.tls {
			r.TLS = &tls.ConnectionState{}
		}
		r.Header["X-Forwarded-Proto"] = tc.said
		if got := tc.limits.Scheme(r); got != tc.want {
			t.Errorf("%s, TLS %t, forwarded %q: %s, want %s", tc.remote, tc.tls, tc.said, got, tc.want)
		}
	}
}

// An account passes as often as its rate and burst allow, a refusal has the time to wait, and at most maxLimited
// accounts are remembered.
func TestRatesAreKeptAndForgottenWithinBounds(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLimits(Rate{PerSecond: 10, Burst: 5}, Rate{}, nil, func() time.Time { return now })
	passed := 0
	for range 100 { // ten seconds at ten times the rate
		for range 10 {
			if l.Account("alice", nil) == nil {
				passed++
			}
		}
		now = now.Add(100 * time.Millisecond)
	}
	if passed < 100 || passed > 105 {
		t.Errorf("%d of 1000 passed in ten seconds at 10 a second, 5 at once", passed)
	}
	for range 5 {
		_ = l.Account("bob", nil)
	}
	err := l.Account("bob", nil)
	var e *Error
	if !errors.As(err, &e) || e.Answer.Status != 429 || e.Answer.RetryAfter != time.Second {
		t.Errorf("refused with %v", err)
	}
	for i := range 4 * maxLimited {
		_ = l.Account(state.AccountID(fmt.Sprint(i)), nil)
	}
	n := 0
	for i := range l.account.shards {
		n += l.account.shards[i].full.Len()
	}
	if n > maxLimited {
		t.Errorf("%d accounts remembered, the most is %d", n, maxLimited)
	}
	var none *Limits
	if none.Owed("x", 1); none.Account("x", nil) != nil || none.Address(httptest.NewRequest(http.MethodGet, "/", nil)) != nil {
		t.Error("no limits refuse")
	}
}

// A Bearer token that was refused for its account's rate is refused again until the rate has room or refusalFor
// is over, other credentials are not, and at most maxRefusals are remembered.
func TestATokenIsToldAgainThatItHasToWait(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLimits(Rate{PerSecond: 20, Burst: 1}, Rate{}, nil, func() time.Time { return now })
	by := func(authorization string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", authorization)
		return r
	}
	token, other, signed := by("Bearer one"), by("Bearer two"), by("AWS4-HMAC-SHA256 x")
	if l.Account("alice", token) != nil || l.Refusal(token) != nil {
		t.Error("refused too early")
	}
	if err := l.Account("alice", token); err == nil || !errors.Is(l.Refusal(token), err) {
		t.Errorf("refused with %v, then %v", err, l.Refusal(token))
	}
	if l.Account("alice", signed) == nil || l.Refusal(signed) != nil || l.Refusal(other) != nil || l.Refusal(by("bearer one")) != nil {
		t.Error("told to others than the token")
	}
	now = now.Add(50*time.Millisecond - 1)
	if l.Refusal(token) == nil {
		t.Error("not told while there is nothing")
	}
	now = now.Add(1)
	if l.Refusal(token) != nil || l.Account("alice", token) != nil {
		t.Error("told although there is one")
	}
	l = NewLimits(Rate{PerSecond: 1, Burst: 1}, Rate{}, nil, func() time.Time { return now })
	if l.Account("alice", token) != nil || l.Account("alice", token) == nil {
		t.Error("not one at once")
	}
	now = now.Add(refusalFor - 1)
	if l.Refusal(token) == nil {
		t.Error("not told while there is nothing, far from the end")
	}
	now = now.Add(1)
	if l.Refusal(token) != nil {
		t.Error("told although the token was not looked at for long")
	}
	for i := range 3 * maxRefusals {
		_ = l.Account("alice", by(fmt.Sprint("Bearer ", i)))
	}
	if n := l.refusals.Len(); n > maxRefusals {
		t.Errorf("%d tokens remembered, the most is %d", n, maxRefusals)
	}
	var none *Limits
	if none.Refusal(token) != nil || none.Pressed() {
		t.Error("no limits refuse")
	}
}

// setBack returns a time as it is read right after somebody has set the node's clock back by
// seconds: what it shows is another time, and what has passed is as before.
func setBack(t time.Time, seconds uint64) time.Time {
	wall := (*uint64)(unsafe.Pointer(&t)) // the first field: a bit, 33 of seconds, 30 of nanoseconds
	*wall -= seconds << 30
	return t
}

// A clock that is set back refuses no account and no address, and forgets earlier refusals.
func TestAClockThatIsSetBackRefusesNobody(t *testing.T) {
	now, back := time.Now(), uint64(0)
	l := NewLimits(Rate{PerSecond: 1, Burst: 1}, Rate{PerSecond: 1, Burst: 1}, nil, func() time.Time { return setBack(now, back) })
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer one")
	if l.Address(r) != nil || l.Account("alice", r) != nil || l.Account("alice", r) == nil {
		t.Error("not one at once")
	}
	now, back = now.Add(2*time.Second), 3600
	if l.Pressed() || l.Refusal(r) != nil {
		t.Error("a refusal of before counts")
	}
	if err := errors.Join(l.Address(r), l.Account("alice", r)); err != nil {
		t.Error(err)
	}
}

func BenchmarkAccount(b *testing.B) {
	l := NewLimits(Rate{PerSecond: 1_000_000, Burst: 1_000_000_000}, Rate{}, nil, nil)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := l.Account("an account of some length", nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Requests that continue a list wait for the rate, of many at once most are refused, and a request that begins
// one is refused at once.
func TestWhoGoesOnIsSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimits(Rate{PerSecond: 100, Burst: 10}, Rate{}, nil, nil)
		r := httptest.NewRequest(http.MethodGet, "/pins?before=", nil).WithContext(t.Context())
		began := time.Now()
		for i := range 40 {
			if err := l.Paced("one", r); err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
		if took := time.Since(began); took != 300*time.Millisecond {
			t.Errorf("30 requests beyond the burst took %s", took)
		}
		if err := l.Account("one", r); err == nil {
			t.Error("a request that does not go on was taken at once")
		}
		var refused atomic.Int64
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				if l.Paced("flood", r) != nil {
					refused.Add(1)
				}
			})
		}
		all.Wait()
		if n := refused.Load(); n != 200-10-25 {
			t.Errorf("%d of 200 at once were refused", n)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := l.Paced("flood", r.WithContext(gone)); !errors.Is(err, context.Canceled) {
			t.Errorf("who has left: %v", err)
		}
	})
}
