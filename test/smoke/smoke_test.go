package smoke

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// pinnedWithin bounds how long the content may take to be pinned.
const pinnedWithin = 2 * time.Minute

// TestSmokeThreeProcessesPinForeignContentAndSurviveOne promises that three processes pin
// content of a foreign peer and all list it, and that two of them serve and pin on after the
// leader is killed.
func TestSmokeThreeProcessesPinForeignContentAndSurviveOne(t *testing.T) {
	c := harness.Start(t, harness.Options{})
	source := harness.StartBoxo(t)
	token := c.Nodes[0].UserKey("smoke@example.org").Token
	files := append(source.AddRandom(5, 1_200_000), source.AddBytes([]byte("small")))
	var newestFirst []string
	for i, f := range files {
		st, err := c.Nodes[i%3].Pins(token).Post(t.Context(), harness.Pin{CID: f.CID, Origins: source.Addrs})
		if err != nil {
			t.Fatal(err)
		}
		newestFirst = append([]string{st.RequestID}, newestFirst...)
	}
	for i, id := range newestFirst {
		if _, err := harness.WaitPinned(t.Context(), c.Nodes[i%3].Pins(token), id, pinnedWithin); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range c.Nodes {
		list, err := n.Pins(token).ListAll(t.Context(), nil, 4)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range list {
			got = append(got, p.RequestID)
		}
		if !slices.Equal(got, newestFirst) {
			t.Errorf("%s lists %v, want %v", n.Name, got, newestFirst)
		}
	}
	source.Close()
	if err := c.SameState(t.Context()); err != nil {
		t.Error(err)
	}
	c.Leader().Kill()
	for _, n := range c.Live() {
		for _, f := range files {
			if !f.Matches(n.Get(f.CID)) {
				t.Errorf("%s gives other bytes for %s", n.Name, f.CID)
			}
		}
	}
	// The two that are left still take and keep pins.
	f := files[0]
	st, err := c.Leader().Pins(token).Post(t.Context(), harness.Pin{CID: f.CID})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Live() {
		if _, err := harness.WaitPinned(t.Context(), n.Pins(token), st.RequestID, pinnedWithin); err != nil {
			t.Fatal(err)
		}
	}
}
