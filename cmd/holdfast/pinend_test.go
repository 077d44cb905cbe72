package main

import (
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// `pin ls` and `pin get` show the end of pins that have one, and a list without such pins has no column for it.
func TestPinsShowTheirEnd(t *testing.T) {
	const end = "2027-01-31T12:00:00.000Z"
	ends := client.PinStatus{
		RequestID: "r2", Status: "pinned", Created: "then", Pin: client.Pin{CID: "bafy2", Name: "n"}, Info: map[string]string{"pinned_until": end},
	}
	plain := client.PinStatus{RequestID: "r1", Status: "failed", Created: "before", Pin: client.Pin{CID: "bafy1"}}
	for _, tc := range []struct {
		pins []client.PinStatus
		want string
	}{
		{[]client.PinStatus{ends, plain}, "REQUEST ID STATUS CREATED UNTIL CID NAME r2 pinned then " + end + " bafy2 n r1 failed before - bafy1"},
		{[]client.PinStatus{plain}, "REQUEST ID STATUS CREATED CID NAME r1 failed before bafy1"},
	} {
		got := call(t, &fakeNode{pins: tc.pins}, "", "pin", "ls")
		if words := strings.Join(strings.Fields(got.out), " "); got.code != exitOK || words != tc.want {
			t.Errorf("got %+v, want %q", got, tc.want)
		}
	}
	node := &fakeNode{pins: []client.PinStatus{ends, plain}}
	if got := call(t, node, "", "pin", "get", "r2"); !strings.Contains(got.out, "until     "+end+"\n") {
		t.Errorf("%+v", got)
	}
	if got := call(t, node, "", "pin", "get", "r1"); strings.Contains(got.out, "until") {
		t.Errorf("%+v", got)
	}
	if got := call(t, node, "", "pin", "ls", "--json"); !strings.Contains(got.out, `"pinned_until": "`+end+`"`) || strings.Contains(got.out, `"until"`) {
		t.Errorf("%+v", got)
	}
}

// `pin add --until` sends the end to the node as it was typed, and an empty end is wrong usage.
func TestPinAddTakesAnEnd(t *testing.T) {
	node := &fakeNode{}
	if got := call(t, node, "", "pin", "add", "bafyhave", "--until", "720h"); got.code != exitOK || len(node.pins) != 1 || node.pins[0].Pin.Until != "720h" {
		t.Errorf("%+v, pinned %+v", got, node.pins)
	}
	if got := call(t, node, "", "pin", "add", "bafyhave", "--until", ""); got.code != exitUsage || len(node.pins) != 1 {
		t.Errorf("an empty end: %+v", got)
	}
}

// `pin import` imports a pin beside one of the same CID and name that has an end. The content of a pin with an end
// goes with it, and a person who imports wants to keep it.
func TestImportKeepsWhatWouldEnd(t *testing.T) {
	node := &importNode{}
	node.take(client.Pin{CID: importOne, Name: "n"})
	node.pins[0].Info = map[string]string{"pinned_until": "2027-01-31T12:00:00.000Z"}
	line := importOne + " recursive n\n"
	for _, want := range []string{"1 imported, 0 already here", "0 imported, 1 already here"} {
		if got := call(t, node, line, "pin", "import"); got.code != exitOK || !strings.HasPrefix(got.out, want) {
			t.Errorf("%+v, want %q", got, want)
		}
		node.wantPins(t, "bafkreig n", "bafkreig n")
	}
}
