package accounts

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// takeAll takes the places to hash in; leave gives back the one that a line is served
// first in.
func takeAll(t *testing.T, a *Accounts) (leave [lines]func()) {
	t.Helper()
	for in := range lines {
		var err error
		if leave[in], err = a.hashSlots.signIn(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	return leave
}

// Each of the two queues for sign-ins holds maxSigningIn callers and refuses one more with ErrUnavailable, and
// neither refuses the hashing of a new password.
func TestACrowdThatSignsInWaitsInABoundedQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{Secret: clusterSecret})
		leave := takeAll(t, a)
		done := make(chan error, lines*maxSigningIn)
		for _, in := range []line{regulars, unknown} {
			for range maxSigningIn {
				go func() {
					_, err := a.matches(t.Context(), in, "", "wrong")
					done <- err
				}()
			}
		}
		synctest.Wait()
		for in := range lines {
			if _, err := a.matches(t.Context(), in, "", "wrong"); !errors.Is(err, state.ErrUnavailable) {
				t.Errorf("one too many: %v", err)
			}
		}
		hashed := make(chan error)
		go func() {
			_, err := a.hashPassword(t.Context(), "an operator's is not refused")
			hashed <- err
		}()
		for _, leave := range leave {
			leave()
		}
		for range lines * maxSigningIn {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if err := <-hashed; err != nil {
			t.Error(err)
		}
	})
}

// A user who signed in before from the same network signs in while wrong passwords from everywhere fill the other
// queue. A user who was never here is refused with ErrUnavailable only while the queue is full.
func TestWrongPasswordsKeepNobodyOutWhoWasHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newUser(t)
		if _, err := w.CreateAccount(t.Context(), "bob@example.org", password); err != nil {
			t.Fatal(err)
		}
		signIn := func(name, password, from string) error {
			_, err := w.SignIn(t.Context(), name, password, netip.MustParseAddr(from))
			return err
		}
		if err := signIn(email, password, "192.0.2.7"); err != nil {
			t.Fatal(err)
		}
		leave := takeAll(t, w.Accounts)
		wrong := make(chan error, maxSigningIn)
		for i := range maxSigningIn {
			go func() {
				wrong <- signIn(fmt.Sprintf("u%d@example.org", i), "wrong", fmt.Sprintf("10.0.%d.1", i))
			}()
		}
		synctest.Wait()
		for _, tc := range []struct{ what, name, from string }{
			{"one who was never here", "bob@example.org", "192.0.2.7"},
			{"a known name from elsewhere", email, "192.0.3.7"},
			{"an unknown name from there", "nobody@example.org", "192.0.2.7"},
		} {
			if err := signIn(tc.name, password, tc.from); !errors.Is(err, state.ErrUnavailable) {
				t.Errorf("%s, while a crowd waits: %v", tc.what, err)
			}
		}
		known := make(chan error)
		go func() { known <- signIn(" Alice@Example.org", password, "192.0.2.200") }()
		synctest.Wait()
		leave[regulars]()
		if err := <-known; err != nil {
			t.Errorf("who was here before: %v", err)
		}
		leave[unknown]()
		for range maxSigningIn {
			if err := <-wrong; !errors.Is(err, state.ErrUnauthorized) {
				t.Error(err)
			}
		}
		if err := signIn("bob@example.org", password, "192.0.2.7"); err != nil {
			t.Errorf("one who was never here, after the crowd: %v", err)
		}
	})
}

// Many sign-ins at once with the right password do not count as wrong ones; one more than may be wrong is refused
// with ErrUnavailable, not with ErrLimited. So a script that signs in many times at once has to come again in a
// moment, and not in a minute.
func TestRightPasswordsAtOnceAreNotWrongOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newUser(t)
		signIn := func(password string) error {
			_, err := w.SignIn(t.Context(), email, password, netip.MustParseAddr("192.0.2.7"))
			return err
		}
		for wrong := range 2 {
			leave := takeAll(t, w.Accounts)
			ended := make(chan error, DefaultTries)
			for i := range DefaultTries {
				go func() { ended <- signIn(password + "wrong"[:min(i, wrong)]) }()
			}
			synctest.Wait()
			if err := signIn(password); !errors.Is(err, state.ErrUnavailable) {
				t.Errorf("one more while %d are tried: %v", DefaultTries, err)
			}
			for _, leave := range leave {
				leave()
			}
			refused := 0
			for range DefaultTries {
				if err := <-ended; errors.Is(err, state.ErrUnauthorized) {
					refused++
				} else if err != nil {
					t.Errorf("one of %d at once: %v", DefaultTries, err)
				}
			}
			if refused != wrong*(DefaultTries-1) {
				t.Errorf("%d of %d are refused", refused, DefaultTries)
			}
			if err := signIn(password); err != nil {
				t.Errorf("after %d wrong ones: %v", refused, err)
			}
		}
		if err := signIn("wrong"); !errors.Is(err, state.ErrUnauthorized) {
			t.Errorf("the last that may be wrong: %v", err)
		}
		if err := signIn(password); !errors.Is(err, state.ErrLimited) {
			t.Errorf("after %d wrong ones: %v", DefaultTries, err)
		}
		if n := len(w.tries.pending); n > 0 {
			t.Errorf("%d are tried when none is", n)
		}
	})
}

// Each queue is served first in one of the two slots, and in the other slot while nobody waits in the other queue.
func TestNeitherLineKeepsTheOtherOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{Secret: clusterSecret})
		leave := takeAll(t, a)
		type came struct {
			name  string
			leave func()
		}
		slotWaiter := make(chan came, 10)
		wait := func(ctx context.Context, name string, in line) {
			go func() {
				leave, err := a.hashSlots.signIn(ctx, in)
				if err != nil {
					name = err.Error()
				}
				slotWaiter <- came{name, leave}
			}()
			synctest.Wait()
		}
		gone, cancel := context.WithCancel(t.Context())
		wait(t.Context(), "stranger 1", unknown)
		wait(gone, "who does not wait", unknown)
		for i := 2; i <= 4; i++ {
			wait(t.Context(), fmt.Sprintf("stranger %d", i), unknown)
		}
		wait(t.Context(), "regular 1", regulars)
		wait(t.Context(), "regular 2", regulars)
		cancel()
		if c := <-slotWaiter; c.leave != nil {
			t.Fatalf("%s has a place", c.name)
		}
		var order []string
		for _, in := range []line{regulars, unknown, regulars, regulars, unknown, unknown} {
			leave[in]()
			c := <-slotWaiter
			order, leave[in] = append(order, c.name), c.leave
		}
		if want := []string{"regular 1", "stranger 1", "regular 2", "stranger 2", "stranger 3", "stranger 4"}; !slices.Equal(order, want) {
			t.Errorf("served %v, want %v", order, want)
		}
		for _, leave := range leave {
			leave()
		}
		takeAll(t, a)
	})
}

// ending is a context that has ended when it is asked whether it has, and does something
// right before.
type ending struct {
	context.Context
	before func()
}

func (e ending) Done() <-chan struct{} {
	e.before()
	return e.Context.Done()
}

// A caller that stops waiting at the moment of its turn passes the slot on.
func TestAPlaceIsNotLostWithWhoStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{Secret: clusterSecret})
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 { // each time one of the two at random
			leave := takeAll(t, a)
			if leave, err := a.hashSlots.signIn(ending{over, leave[regulars]}, regulars); err == nil {
				leave()
			}
			leave[unknown]()
		}
		takeAll(t, a)
	})
}

// A user is known by e-mail and network (/24 of IPv4, /64 of IPv6) for knownFor after a sign-in.
func TestWhoIsKnown(t *testing.T) {
	addr := netip.MustParseAddr
	k, now := newKnown(), time.Unix(1_800_000_000, 0)
	k.note(now, email, addr("192.0.2.7"))
	k.note(now.Add(time.Hour), email, addr("2001:db8:1:2::1"))
	for _, tc := range []struct {
		name, from string
		after      time.Duration
		want       bool
	}{
		{email, "192.0.2.7", 0, true},
		{" ALICE@example.org", "::ffff:192.0.2.250", 0, true},
		{email, "192.0.3.7", 0, false},
		{email, "2001:db8:1:2:ffff::", 0, true},
		{email, "2001:db8:1:3::1", 0, false},
		{"bob@example.org", "192.0.2.7", 0, false},
		{"", "192.0.2.7", 0, false},
		{email, "192.0.2.7", knownFor - time.Second, true},
		{email, "192.0.2.7", knownFor, false},
		{email, "2001:db8:1:2::1", knownFor, true},
	} {
		if got := k.first(now.Add(tc.after), tc.name, addr(tc.from)); got != tc.want {
			t.Errorf("%q from %s after %s: %v", tc.name, tc.from, tc.after, got)
		}
	}
}

// A known account goes first at most knownTries times a minute from all its networks, and a network at most
// addressTries times as often for all its accounts.
func TestNobodyGoesFirstAllTheTime(t *testing.T) {
	k, now := newKnown(), time.Unix(1_800_000_000, 0)
	firsts := func(names, networks int, at time.Time) (n int) {
		for name := range names {
			for network := range networks {
				name, from := fmt.Sprintf("u%d@example.org", name), netip.AddrFrom4([4]byte{10, 0, byte(network), 1})
				k.note(at, name, from)
				for range 2 * knownTries {
					if k.first(at, name, from) {
						n++
					}
				}
			}
		}
		return n
	}
	if n := firsts(1, maxKnownNetworks, now); n != knownTries {
		t.Errorf("one account went first %d times in a minute", n)
	}
	if n := firsts(20, 1, now.Add(triesWithin)); n != knownTries*addressTries {
		t.Errorf("one network went first %d times in a minute", n)
	}
}

// A node remembers at most maxKnown names and maxKnownNetworks networks of each, and drops the oldest.
func TestWhoIsKnownIsBounded(t *testing.T) {
	k, now := newKnown(), time.Unix(1_800_000_000, 0)
	for i := range maxKnown + 10 {
		k.note(now.Add(time.Duration(i)), fmt.Sprintf("u%d@example.org", i), netip.AddrFrom4([4]byte{10, 0, 0, 1}))
	}
	if n := k.by.Len(); n != maxKnown {
		t.Errorf("%d names remembered", n)
	}
	for i := range 256 {
		k.note(now.Add(time.Hour), fmt.Sprintf("u%d@example.org", 10), netip.AddrFrom4([4]byte{10, 1, byte(i), 1}))
	}
	for _, tc := range []struct {
		name    int
		network byte
		want    bool
	}{{9, 0, false}, {11, 0, true}, {maxKnown + 9, 0, true}, {10, 0, false}} {
		if got := k.first(now, fmt.Sprintf("u%d@example.org", tc.name), netip.AddrFrom4([4]byte{10, 0, 0, 1})); got != tc.want {
			t.Errorf("u%d: %v", tc.name, got)
		}
	}
	of, _ := k.names("u10@example.org", netip.Addr{})
	if places, _ := k.by.Peek(of); len(places) != maxKnownNetworks || cap(places) > 4*maxKnownNetworks {
		t.Errorf("%d networks of a name remembered, room for %d", len(places), cap(places))
	}
}
