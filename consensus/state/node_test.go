package state

import (
	"slices"
	"testing"
)

// CreateTicket removes the tickets that have expired at its agreed time, and none if that time is not known.
func TestExpiredTicketsGoWithTheNextOne(t *testing.T) {
	m := found(t)
	ticket := func(id NodeID, expired Millis) *CreateTicket {
		return &CreateTicket{Ticket: Ticket{ID: id, Created: 1 << 42, Expires: 1<<42 + 100}, Expired: expired}
	}
	for _, tc := range []struct {
		what    string
		id      NodeID
		expired Millis
		want    []NodeID
	}{
		{"the first", "t1", 0, []NodeID{"t1"}},
		{"nobody knows the time", "t2", 0, []NodeID{"t1", "t2"}},
		{"they have not expired", "t3", 1<<42 + 99, []NodeID{"t1", "t2", "t3"}},
		{"they have", "t4", 1<<42 + 100, []NodeID{"t4"}},
	} {
		m.must(ticket(tc.id, tc.expired))
		m.check()
		open, err := m.view().Tickets()
		if err != nil {
			t.Fatal(err)
		}
		var got []NodeID
		for _, o := range open {
			got = append(got, o.ID)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v are open, want %v", tc.what, got, tc.want)
		}
	}
}
