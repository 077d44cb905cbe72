package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// manyThings returns a node with something of each kind that can be taken away.
func manyThings() *fakeNode {
	return &fakeNode{
		pins: []client.PinStatus{{RequestID: "r1", Status: "pinned", Pin: client.Pin{CID: "bafy1", Name: "first"}, Info: map[string]string{"dag_size": "5242880"}}},
		status: client.Status{Leader: "12D3", Peers: []client.Peer{
			{ID: "12D3", Name: "beta", Role: "voter", State: "alive", Pins: 1100, UsedBytes: 5 << 20},
		}},
	}
}

// removals are the commands that take something away: what they ask on a terminal, and
// the change that follows a yes.
var removals = []struct{ args, asks, change string }{
	{"user rm a@b", "account a@b and all it has: 1,100 pins, 1 bucket with 12 objects and 30 old versions, 2 keys, 5.0 MiB stored", "rm a@b"},
	{"user disable a@b", "This disables the account a@b: every node refuses its 2 API keys and 0 sessions, and its shares.\r\nIts pins and objects stay.", "disable a@b true"},
	{"peers rm beta", "member beta (12D3): voter, alive, the leader of the cluster.\r\nIt holds 1,100 roots of content, 5.0 MiB in all.\r\n" +
		"No other answering member holds 2 roots of them: that content would be lost.\r\nAfter the removal: 2 votes, of which 1 answer now and 2 are needed.", "peer 12D3 false"},
	{"peers drain beta", "This drains member beta (12D3): voter, alive.\r\nIt holds 1,100 roots, 5.0 MiB in all. 2 other members keep content then and have 7.0 GiB free.\r\n" +
		"Copies of each content without it: 2 instead of 3.\r\nThe others may have too little room: the drain then stops until they have more.", "drain 12D3 true"},
	{"key revoke k1", `key k1 "lap?top" of a@b: storage:read, never used`, "revoke k1"},
	{"pin rm r1", `pin r1 "first" of bafy1: pinned, 5.0 MiB`, "unpin  r1"},
}

// A command that takes something away describes it on a terminal, and changes it only after a yes. With --yes it does
// not ask.
func TestARemovalAsksOnATerminal(t *testing.T) {
	for _, tc := range removals {
		for _, answer := range []struct {
			typed string
			code  int
		}{
			{"y\n", exitOK},
			{"Yes\n", exitOK},
			{"n\n", exitFailure},
			{"\n", exitFailure},
			{"\x04", exitFailure}, // the end of the input
			{"yesterday\n", exitFailure},
		} {
			node := manyThings()
			code, shown, errs := onTerminal(t.Context(), t, node, answer.typed, tc.args)
			if code != answer.code || !strings.Contains(shown, tc.asks) {
				t.Errorf("%s answered %q: code %d, shows %q", tc.args, answer.typed, code, shown)
			}
			if changed := slices.Equal(node.changes, []string{tc.change}); changed != (answer.code == exitOK) || !changed && len(node.changes) > 0 {
				t.Errorf("%s answered %q: changes %q", tc.args, answer.typed, node.changes)
			}
			if code != exitOK && !strings.Contains(errs, "nothing was changed") {
				t.Errorf("%s answered %q: it says %q", tc.args, answer.typed, errs)
			}
		}
		node := manyThings()
		if code, shown, _ := onTerminal(t.Context(), t, node, "", tc.args+" --yes"); code != exitOK || strings.Contains(shown, "?") || len(node.changes) != 1 {
			t.Errorf("%s --yes: code %d, shows %q, changes %q", tc.args, code, shown, node.changes)
		}
		if node.counts != 0 {
			t.Errorf("%s --yes waits for a count that nobody is shown", tc.args)
		}
	}
}

// A question that Ctrl-C interrupts exits with code 1 and changes nothing. Ctrl-C reaches the program as a signal,
// which ends the context of the call.
func TestAQuestionThatIsInterruptedChangesNothing(t *testing.T) {
	for _, tc := range removals {
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		node := manyThings()
		code, _, errs := onTerminal(ctx, t, node, "", tc.args)
		if code != exitFailure || len(node.changes) > 0 || !strings.Contains(errs, "nothing was changed: interrupted") {
			t.Errorf("%s: code %d, %q, changes %q", tc.args, code, errs, node.changes)
		}
	}
}

// onTerminal runs a command at a terminal whose person types something at the question,
// and returns what the terminal showed, and of that the message of the failure.
func onTerminal(ctx context.Context, t *testing.T, node *fakeNode, typed, args string) (code int, shown, errs string) {
	t.Helper()
	person, terminal := newTerminal(t)
	a, _ := testApp(t, node, "")
	a.stdin, a.stderr = terminal, terminal
	ended := make(chan int, 1)
	go func() {
		code := a.execute(ctx, strings.Fields(args))
		_, _ = terminal.WriteString("\x00") // ends what is read below, or its deadline does
		ended <- code
	}()
	if err := person.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for part := make([]byte, 4096); !bytes.HasSuffix(all.Bytes(), []byte{0}); {
		n, err := person.Read(part)
		all.Write(part[:n])
		if err != nil {
			t.Fatalf("%s shows %q: %v", args, &all, err)
		}
		if typed != "" && strings.Contains(all.String(), "[y/N] ") { // not before: the terminal shows it where it comes
			if _, err := person.WriteString(typed); err != nil {
				t.Fatal(err)
			}
			typed = ""
		}
	}
	code = <-ended
	shown = strings.TrimSuffix(all.String(), "\x00")
	if i := strings.LastIndex(shown, "holdfast: "); i >= 0 {
		errs = shown[i:]
	}
	return code, shown, errs
}
