package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

func TestClientBehindProxies(t *testing.T) {
	l := NewLimits(Rate{}, Rate{}, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}, nil)
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

func TestRatesAreKeptAndForgottenWithinBounds(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLimits(Rate{PerSecond: 10, Burst: 5}, Rate{}, nil, func() time.Time { return now })
	passed := 0
	for range 100 { // ten seconds at ten times the rate
		for range 10 {
			if l.Account("alice") == nil {
				passed++
			}
		}
		now = now.Add(100 * time.Millisecond)
	}
	if passed < 100 || passed > 105 {
		t.Errorf("%d of 1000 passed in ten seconds at 10 a second, 5 at once", passed)
	}
	for range 5 {
		_ = l.Account("bob")
	}
	err := l.Account("bob")
	var e *Error
	if !errors.As(err, &e) || e.Answer.Status != 429 || e.Answer.RetryAfter != time.Second {
		t.Errorf("refused with %v", err)
	}
	for i := range 4 * maxLimited {
		_ = l.Account(state.AccountID(fmt.Sprint(i)))
	}
	n := 0
	for i := range l.account.shards {
		n += len(l.account.shards[i].younger) + len(l.account.shards[i].older)
	}
	if n > maxLimited {
		t.Errorf("%d accounts remembered, the most is %d", n, maxLimited)
	}
	var none *Limits
	if none.Account("x") != nil || none.Address(httptest.NewRequest(http.MethodGet, "/", nil)) != nil {
		t.Error("no limits refuse")
	}
}

func BenchmarkAccount(b *testing.B) {
	l := NewLimits(Rate{PerSecond: 1_000_000, Burst: 1_000_000_000}, Rate{}, nil, nil)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := l.Account("an account of some length"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
