package main

import (
	"slices"
	"testing"
)

// The numbers of pins of the flag -scale are above 0 and ascend. Wrong ones are refused and change nothing.
func TestStagesAscend(t *testing.T) {
	for text, want := range map[string]stages{"20": {20}, "20,300, 4000": {20, 300, 4000}, "": nil, "0": nil, "20,20": nil, "20,3": nil, "20,": nil, "1e6": nil} {
		var got stages
		if err := got.Set(text); (err == nil) != (want != nil) || !slices.Equal(got, want) {
			t.Errorf("%q gives %v, %v, want %v", text, got, err, want)
		}
	}
	if s := (stages{20, 300}); s.String() != "20,300" {
		t.Errorf("%v is written as %q", []int(s), s.String())
	}
}

// Each pin has a CID of its own, which holds its content, so that no node fetches it.
func TestPinsOfTheScaleAreDistinct(t *testing.T) {
	if a, b := string(scalePin(1000)), string(scalePin(2000)); a == b || a != `{"cid":"bafkqacaaaaaaaaaaapua","name":"pin 000001000","meta":{"group":"0"}}` {
		t.Errorf("the pins are %s and %s", a, b)
	}
}
