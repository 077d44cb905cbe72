package main

import (
	"strings"
	"testing"
	"time"
)

// The top-level tests that ended are read from the output of a step, with their packages and times, among other
// lines.
func TestTestsAreReadFromAStep(t *testing.T) {
	const out = `go build -o bin/holdfast ./cmd/holdfast
{"Action":"run","Package":"example.org/holdfast/cluster/pins","Test":"TestA"}
{"Action":"output","Package":"example.org/holdfast/cluster/pins","Test":"TestA","Output":"{\"Action\":\"pass\"}\n"}
{"Action":"pass","Package":"example.org/holdfast/cluster/pins","Test":"TestA/part","Elapsed":1}
{"Action":"pass","Package":"example.org/holdfast/cluster/pins","Test":"TestA","Elapsed":1.5}
{"Action":"skip","Package":"example.org/holdfast/cluster/pins","Test":"TestS","Elapsed":0}
{not JSON
{"Action":"output","Package":"example.org/holdfast/peer","Test":"TestB/part","Output":"why\n"}
{"Action":"fail","Package":"example.org/holdfast/peer","Test":"TestB","Elapsed":0.25}
{"Action":"fail","Package":"example.org/holdfast/peer","Elapsed":2}`
	got, err := read(strings.NewReader(out), "race")
	want := []test{
		{step: "race", pkg: "cluster/pins", name: "TestA", wall: 1500 * time.Millisecond},
		{step: "race", pkg: "peer", name: "TestB", wall: 250 * time.Millisecond, failed: true, output: "why\n"},
	}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}
