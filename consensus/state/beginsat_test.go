package state

import "testing"

// BeginsAt returns the time of the node's own clock, or that of most members if the node's clock is wrong.
func TestWhenADurationBegins(t *testing.T) {
	for _, tc := range []struct {
		name             string
		own, early, late Millis
		unknown          bool
		want             Millis
	}{
		{"the samples of the others are old", 10_000, 8_000, 10_000, false, 10_000},
		{"the samples were on their way", 10_000, 8_000, 9_700, false, 10_000},
		{"the own clock is behind", 5_000, 8_000, 10_000, false, 8_000},
		{"the own clock is ahead", 3_600_000, 8_000, 10_000, false, 10_000},
		{"only the own clock is known", 5_000, 0, 0, true, 5_000},
	} {
		agreed := func() (early, late Millis, ok bool) { return tc.early, tc.late, !tc.unknown }
		if got := BeginsAt(tc.own, agreed); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}
