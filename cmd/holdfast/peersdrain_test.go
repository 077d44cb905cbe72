package main

import (
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// The line about a drain has what is left, the rate and the time left, and says which of these is not known.
func TestALineTellsHowFarADrainIs(t *testing.T) {
	var (
		bytes, none            = uint64(12_884_901_888), float64(0)
		rate, fast, seconds    = 229.3, float64(600 << 20), int64(1234)
		peer                   = client.Peer{ID: "12D3", Name: "beta"}
		withRate, withoutBytes = client.Drain{RootsLeft: 4312, BytesLeft: &bytes, RootsPerMinute: &rate, BytesPerMinute: &fast, SecondsLeft: &seconds}, client.Drain{RootsPerMinute: &rate, BytesPerMinute: &none}
	)
	for _, tc := range []struct {
		drain *client.Drain
		want  string
	}{
		{nil, "4,312 roots left on beta"},
		{&client.Drain{}, "4,312 roots left on beta; the rate is not known yet"},
		{&client.Drain{BytesLeft: &bytes, RootsPerMinute: &none, BytesPerMinute: &none}, "4,312 roots, 12.0 GiB left on beta; none left it in the last minute, so the time is not known"},
		{&withRate, "4,312 roots, 12.0 GiB left on beta; 230 roots a minute, 10.0 MiB/s; 20m34s left"},
		{&withoutBytes, "4,312 roots left on beta; 230 roots a minute; the time left is not known"},
	} {
		p := client.DrainPlan{Peer: peer, Roots: 4312}
		p.Drain = tc.drain
		if got := drainLeft(&p); got != tc.want {
			t.Errorf("got %q\nwant %q", got, tc.want)
		}
	}
}
