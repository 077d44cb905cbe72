package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"golang.org/x/sys/unix"
)

// newTerminal returns a terminal that a program can have, and the side of the person at it.
func newTerminal(t *testing.T) (person, terminal *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	t.Cleanup(func() { _ = person.Close() })
	var number int
	if err := control(person, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return person, terminal
}

// control calls do with the descriptor of a file. After os.File.Fd its deadlines would end
// no read.
func control(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var did error
	err = conn.Control(func(fd uintptr) { did = do(int(fd)) })
	return errors.Join(err, did)
}

// typing is a command that runs at a terminal.
type typing struct {
	t        *testing.T
	args     string
	person   *os.File
	terminal *os.File
	node     *fakeNode
	out      *written
	ended    chan int
}

func startTyping(ctx context.Context, t *testing.T, args string) *typing {
	t.Helper()
	person, terminal := newTerminal(t)
	node := &fakeNode{}
	a, w := testApp(t, node, "")
	a.stdin, a.stderr = terminal, terminal
	s := &typing{t, args, person, terminal, node, w, make(chan int, 1)}
	go func() { s.ended <- a.execute(ctx, strings.Fields(args)) }()
	return s
}

// hidden tells whether the terminal does not show what is typed.
func (s *typing) hidden() bool {
	var settings *unix.Termios
	err := control(s.person, func(fd int) (err error) {
		settings, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	return err == nil && settings.Lflag&unix.ECHO == 0
}

// prompted waits until the terminal shows text and hides what is typed.
func (s *typing) prompted(text string) (shown string) {
	s.t.Helper()
	shown = s.seen(text)
	if !s.hidden() {
		s.t.Errorf("%s: what is typed at %q is shown", s.args, text)
	}
	return shown
}

// seen waits until the terminal shows text, and returns what it showed.
func (s *typing) seen(text string) string {
	s.t.Helper()
	if err := s.person.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	var all bytes.Buffer
	for part := make([]byte, 4096); !strings.Contains(all.String(), text); {
		n, err := s.person.Read(part)
		all.Write(part[:n])
		if err != nil {
			s.t.Fatalf("%s shows %q: %v", s.args, &all, err)
		}
	}
	return all.String()
}

func (s *typing) types(text string) {
	s.t.Helper()
	if _, err := s.person.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// passwordCommands are those that take a password, what they ask, and what they do with it.
var passwordCommands = []struct{ args, prompt, out, change string }{
	{"user add a@b --password-stdin", "Password: ", "a@btyped words\n", ""},
	{"user passwd a@b", "New password: ", "changed the password of a@b; its sessions have ended\n", "passwd a@b typed words"},
}

const promptAgain = "The same again: "

// A password at a terminal is asked for twice, is not shown, and is set only if both entries are equal.
func TestAPasswordThatIsTypedIsAskedForTwiceAndNotShown(t *testing.T) {
	for _, tc := range passwordCommands {
		for again, code := range map[string]int{"typed words": exitOK, "typed wards": exitFailure, "": exitFailure} {
			s := startTyping(t.Context(), t, tc.args)
			shown := s.prompted(tc.prompt)
			s.types("typed words\n")
			shown += s.prompted(promptAgain)
			s.types(again + "\n")
			if got := <-s.ended; got != code || s.hidden() {
				t.Errorf("%s, again %q: code %d, hidden %t", tc.args, again, got, s.hidden())
			}
			if out := s.out.out.String(); (out == tc.out) != (code == exitOK) || (len(s.node.changes) > 0) != (code == exitOK && tc.change != "") {
				t.Errorf("%s, again %q: %q, %q", tc.args, again, out, s.node.changes)
			}
			if code == exitOK && tc.change != "" && !slices.Equal(s.node.changes, []string{tc.change}) {
				t.Errorf("%s: %q", tc.args, s.node.changes)
			}
			if strings.Contains(shown, "typed") {
				t.Errorf("%s shows %q", tc.args, shown)
			}
		}
	}
}

// A password prompt that is interrupted changes nothing, and gives the terminal back with its echo. It exits with
// code 1.
func TestAPasswordPromptThatIsInterruptedEndsAtOnce(t *testing.T) {
	for _, tc := range passwordCommands {
		for _, prompt := range []string{tc.prompt, promptAgain} {
			ctx, interrupt := context.WithCancel(t.Context())
			s := startTyping(ctx, t, tc.args)
			s.prompted(tc.prompt)
			if prompt == promptAgain {
				s.types("typed words\n")
				s.prompted(promptAgain)
			}
			s.types("typ")
			interrupt()
			if got := <-s.ended; got != exitFailure || s.hidden() || len(s.node.changes) > 0 || s.out.out.Len() > 0 {
				t.Errorf("%s at %q: code %d, hidden %t, %q, %q", tc.args, prompt, got, s.hidden(), s.node.changes, s.out.out.String())
			}
		}
	}
}

// Each command that reads a pipe to which nobody writes ends with code 1 when it is interrupted, and changes nothing.
func TestReadingThatIsInterruptedEndsAtOnce(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"user add a@b --password-stdin", "user passwd a@b", "add -", "add " + pipe, "pin import", "pin import " + pipe,
		"pin import --from https://pins.example.org --token-file " + pipe,
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		node := &fakeNode{files: map[string]fakeFile{}}
		a, w := testApp(t, node, "")
		begun := make(chan struct{}, 1)
		a.stdin = readerFunc(func(p []byte) (int, error) {
			begun <- struct{}{}
			return in.Read(p)
		})
		ended := make(chan int, 1)
		go func() { ended <- a.execute(ctx, strings.Fields(args)) }()
		if !strings.Contains(args, pipe) {
			<-begun // it reads
		}
		interrupt()
		if code := <-ended; code != exitFailure || len(node.changes) > 0 || !strings.Contains(w.errs.String(), "interrupted") {
			t.Errorf("%s: code %d, %q, changes %q", args, code, w.errs.String(), node.changes)
		}
		if err := errors.Join(out.Close(), in.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A wait for a pin that is interrupted has printed the pin's id or CID, and says that the pin continues.
func TestAWaitThatIsInterruptedHasToldThePin(t *testing.T) {
	for _, tc := range []struct{ args, out string }{
		{"pin add bafyslow --wait", "rbafyslow\n"},
		{"pin add bafyslow --wait --json", `"requestid": "rbafyslow"`},
		{"add -", "bafyadded\n"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		node := &waitingNode{fakeNode: fakeNode{files: map[string]fakeFile{}}, waits: interrupt}
		a, w := testApp(t, node, "some bytes")
		if code := a.execute(ctx, strings.Fields(tc.args)); code != exitFailure || !strings.Contains(w.out.String(), tc.out) || !strings.Contains(w.errs.String(), "continues") {
			t.Errorf("%s: code %d, %q, %q", tc.args, code, w.out.String(), w.errs.String())
		}
	}
}

// waitingNode has pins that nothing becomes of.
type waitingNode struct {
	fakeNode

	waits func() // called when one is waited for
}

func (n *waitingNode) WaitPin(ctx context.Context, _, _ string, _ func(client.PinStatus)) (client.PinStatus, error) {
	n.waits()
	<-ctx.Done()
	return client.PinStatus{}, ctx.Err()
}

// Commands print sizes with units on a terminal, and as plain bytes elsewhere.
func TestSizesAreForWhoReadsThem(t *testing.T) {
	_, terminal := newTerminal(t)
	if got := sizeFor(&output{Writer: terminal}, 5<<20); got != "5.0 MiB" {
		t.Errorf("on a terminal %q", got)
	}
	if got := sizeFor(&output{Writer: new(bytes.Buffer)}, 5<<20); got != "5242880" {
		t.Errorf("elsewhere %q", got)
	}
	node := &fakeNode{status: someStatus()}
	for _, args := range []string{"status", "peers ls"} {
		person, terminal := newTerminal(t)
		s := &typing{t: t, args: args, person: person, terminal: terminal}
		a, _ := testApp(t, node, "")
		a.stdout = terminal
		if code := a.execute(t.Context(), strings.Fields(args)); code != exitOK {
			t.Errorf("%s: code %d", args, code)
		}
		if shown := s.seen("12D3KooWGamma"); !strings.Contains(shown, "1.0 GiB  900 GiB") {
			t.Errorf("%s shows on a terminal\n%s", args, shown)
		}
		if got := call(t, node, "", strings.Fields(args)...); got.code != exitOK || !strings.Contains(got.out, "1073741824  966367641600") {
			t.Errorf("%s prints elsewhere\n%s", args, got.out)
		}
	}
}
