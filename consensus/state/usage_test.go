package state

import (
	"errors"
	"slices"
	"testing"
)

// NoteUsage sums up the requests of an account by day. They are kept for UsageDays days, or until the account is
// closed.
func TestUsageIsNotedByDay(t *testing.T) {
	m := signedIn(t)
	m.must(&NoteUsage{Day: 100, Items: []AccountRequests{{bob, 3}, {alice, 1}, {"gone", 9}}})
	m.must(&NoteUsage{Day: 100, Items: []AccountRequests{{bob, 4}}})
	m.must(&NoteUsage{Day: 101, Items: []AccountRequests{{bob, 1}}})
	usage := func(a AccountID, since Day) (all []Usage) {
		t.Helper()
		all, err := m.view().Usage(a, since)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	quota, err := m.view().Quota(bob)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := usage(bob, 0), []Usage{{100, quota.Used(), 7}, {101, quota.Used(), 1}}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	if got := usage(bob, 101); len(got) != 1 || got[0].Day != 101 {
		t.Errorf("since a day: %v", got)
	}
	if got := usage("gone", 0); len(got) > 0 {
		t.Errorf("an account that is gone has %v", got)
	}
	m.must(&NoteUsage{Day: 100 + UsageDays, Items: []AccountRequests{{bob, 1}}})
	if got := usage(bob, 0); len(got) != 2 || got[0].Day != 101 {
		t.Errorf("after %d days there is %v", UsageDays, got)
	}
	before := m.rows()
	if _, err := m.apply(&NoteUsage{Day: maxDay + 1, Items: []AccountRequests{{bob, 1}}}); !errors.Is(err, ErrInvalid) || !slices.Equal(m.rows(), before) {
		t.Errorf("a day that is none: %v", err)
	}
	m.must(&CloseAccount{Account: bob})
	if got := usage(bob, 0); len(got) > 0 {
		t.Errorf("after the account was closed there is %v", got)
	}
	if len(usage(alice, 0)) != 1 {
		t.Error("the usage of another account is gone")
	}
}
