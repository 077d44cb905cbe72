package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newTerminal is a terminal that a program can have, and the side of the person at it.
func newTerminal(t *testing.T) (person, terminal *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return person, terminal
}

// TestAPasswordThatIsTypedIsAskedForAndNotShown checks both commands that take one.
func TestAPasswordThatIsTypedIsAskedForAndNotShown(t *testing.T) {
	const typed = "typed words"
	for _, tc := range []struct{ args, prompt, out, change string }{
		{"user add a@b --password-stdin", "Password: ", "a@b" + typed + "\n", ""},
		{"user passwd a@b", "New password: ", "changed the password of a@b; its sessions have ended\n", "passwd a@b " + typed},
	} {
		person, terminal := newTerminal(t)
		node := &fakeNode{}
		a, w := testApp(t, node, "")
		a.stdin, a.stderr = terminal, terminal
		ended := make(chan int, 1)
		go func() { ended <- a.execute(t.Context(), strings.Fields(tc.args)) }()
		hidden := func() bool {
			settings, err := unix.IoctlGetTermios(int(person.Fd()), unix.TCGETS)
			return err == nil && settings.Lflag&unix.ECHO == 0
		}
		tick, late := time.NewTicker(time.Millisecond), time.After(10*time.Second)
		for !hidden() {
			select {
			case <-tick.C:
			case <-late:
				t.Fatalf("%s: what is typed is shown", tc.args)
			}
		}
		tick.Stop()
		if _, err := person.WriteString(typed + "\n"); err != nil {
			t.Fatal(err)
		}
		if code := <-ended; code != exitOK || w.out.String() != tc.out || tc.change != "" && !slices.Equal(node.changes, []string{tc.change}) {
			t.Errorf("%s: code %d, %q, %q", tc.args, code, w.out.String(), node.changes)
		}
		shown := make([]byte, 4096)
		n, err := person.Read(shown)
		if err != nil || !bytes.HasPrefix(shown[:n], []byte(tc.prompt)) || bytes.Contains(shown[:n], []byte("typed")) {
			t.Errorf("%s shows %q, %v", tc.args, shown[:n], err)
		}
	}
}
