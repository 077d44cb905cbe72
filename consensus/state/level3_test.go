package state

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
)

// At feature level 3 a fixed history leads to the state that the last release without level 4 came to. Members may
// have that release, and all members have to come to the same state.
func TestAtLevel3TheStateIsThatOfTheReleaseBefore(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: 3})
	here, waits := rootOf(t, contents[1]), rootOf(t, contents[2])
	m.must(create(alice, "here", contents[1]))
	m.hold(here)
	m.must(create(alice, "waits", contents[2]))
	m.report("n1", waits, Held, "")
	m.must(&RemoveNode{ID: "n1"}) // whose copies are on record still
	m.report("n2", waits, Held, "")
	m.report("n3", here, Assigned, "")
	m.must(create(bob, "comes", contents[1]))
	m.check()
	if got := m.status(alice, "waits") + " " + m.status(bob, "comes"); got != "pinned pinned" {
		t.Errorf("the pins are %s", got)
	}
	h := sha256.New()
	if err := m.Scan(nil, nil, false, func(k, v []byte) (bool, error) {
		fmt.Fprintf(h, "%d %x %d %x\n", len(k), k, len(v), v)
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	const want = "e4caf63437fe11fd983295d80810dd3ae1fa86319a1ff56ccc12ee2eeb09cf09"
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("the state is %s, want %s", got, want)
	}
}
