//go:build conformance && linux

package conformance

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// seat is a terminal with a person at it.
type seat struct {
	t        *testing.T
	person   *os.File
	terminal *os.File
	shown    bytes.Buffer
}

func takeSeat(t *testing.T) *seat {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return &seat{t: t, person: person, terminal: terminal}
}

// start runs a command that has the terminal to itself.
func (s *seat) start(n *harness.Node, args ...string) *exec.Cmd {
	s.t.Helper()
	cmd := exec.Command(harness.Binary(s.t), append(args, "--data", n.Dir)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.t.TempDir(), "TERM=dumb"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.terminal, s.terminal, s.terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// sees waits until the terminal shows text.
func (s *seat) sees(text string) {
	s.t.Helper()
	if err := s.person.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	for part := make([]byte, 4096); !strings.Contains(s.shown.String(), text); {
		n, err := s.person.Read(part)
		s.shown.Write(part[:n])
		if err != nil {
			s.t.Fatalf("the terminal shows %q and not %q: %v", &s.shown, text, err)
		}
	}
}

func (s *seat) types(text string) {
	s.t.Helper()
	if _, err := s.person.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// echoes tells whether the terminal shows what is typed.
func (s *seat) echoes() bool {
	s.t.Helper()
	settings, err := unix.IoctlGetTermios(int(s.person.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return settings.Lflag&unix.ECHO != 0
}

// ended waits for the exit code.
func ended(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

// ctrlC is what a person types; the terminal makes a signal of it.
const ctrlC = "\x03"

// TestCtrlCEndsACommandAtOnce promises that Ctrl-C ends a command that asks, reads or waits with exit code 1, and
// leaves a terminal that echoes. A command that asked has changed nothing; a pin that was added stays.
func TestCtrlCEndsACommandAtOnce(t *testing.T) {
	t.Parallel() // a node of its own
	n := harness.Start(t, harness.Options{Nodes: 1}).Nodes[0]
	n.CLI("user", "add", "ann@example.org")
	slow := nowhere().String()
	for _, tc := range []struct {
		args   []string
		prompt string
		hidden bool
	}{
		{[]string{"user", "passwd", "ann@example.org"}, "New password: ", true},
		{[]string{"user", "add", "bob@example.org", "--password-stdin"}, "Password: ", true},
		{[]string{"user", "rm", "ann@example.org"}, "[y/N] ", false},
	} {
		s := takeSeat(t)
		cmd := s.start(n, tc.args...)
		s.sees(tc.prompt)
		if s.echoes() == tc.hidden {
			t.Errorf("%v: the terminal echoes: %t", tc.args, s.echoes())
		}
		s.types("begun" + ctrlC)
		if code := ended(t, cmd); code != 1 || !s.echoes() {
			t.Errorf("%v: exit code %d, the terminal echoes: %t, it shows %q", tc.args, code, s.echoes(), &s.shown)
		}
	}
	s := takeSeat(t)
	cmd := s.start(n, "pin", "add", slow, "--wait")
	harness.Eventually(t, pinnedWithin, "the pin is made", func() (bool, error) {
		return strings.Contains(n.CLI("pin", "ls", "--status", "queued,pinning"), slow), nil
	})
	s.types(ctrlC)
	if code := ended(t, cmd); code != 1 {
		t.Errorf("pin add --wait: exit code %d", code)
	}
	id := strings.Fields(strings.Split(n.CLI("pin", "ls", "--status", "queued,pinning"), "\n")[1])[0]
	s.sees(id)
	s.sees("continues")
	if out := n.CLI("user", "ls"); !strings.Contains(out, "ann@example.org") || strings.Contains(out, "bob@example.org") {
		t.Errorf("an interrupted command has changed something: %s", out)
	}
}

// TestAPasswordIsTypedTwice promises that a password typed twice alike is accepted and one typed otherwise refused,
// and that the terminal shows neither.
func TestAPasswordIsTypedTwice(t *testing.T) {
	t.Parallel() // a node of its own
	n := harness.Start(t, harness.Options{Nodes: 1}).Nodes[0]
	n.CLI("user", "add", "ann@example.org")
	for again, code := range map[string]int{"a long password": 0, "a lang password": 1} {
		s := takeSeat(t)
		cmd := s.start(n, "user", "passwd", "ann@example.org")
		s.sees("New password: ")
		s.types("a long password\n")
		s.sees("again: ")
		s.types(again + "\n")
		if got := ended(t, cmd); got != code || !s.echoes() || strings.Contains(s.shown.String(), "password\n") {
			t.Errorf("again %q: exit code %d, the terminal echoes: %t, it shows %q", again, got, s.echoes(), &s.shown)
		}
	}
}

// TestReadingStandardInputCanBeInterrupted promises that SIGINT ends a command that reads standard input, although
// its other end stays open.
func TestReadingStandardInputCanBeInterrupted(t *testing.T) {
	t.Parallel() // a node of its own
	n := harness.Start(t, harness.Options{Nodes: 1}).Nodes[0]
	n.CLI("user", "add", "ann@example.org")
	for _, args := range [][]string{{"add", "-"}, {"pin", "import"}, {"user", "passwd", "ann@example.org"}} {
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(harness.Binary(t), append(args, "--data", n.Dir)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
		var errs bytes.Buffer
		cmd.Stdin, cmd.Stderr = in, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := in.Close(); err != nil { // the command has it
			t.Fatal(err)
		}
		if _, err := out.WriteString("a part of a line"); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, time.Minute, "the command has read", func() (bool, error) {
			left, err := unix.IoctlGetInt(int(out.Fd()), unix.TIOCINQ)
			return left == 0, err
		})
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := ended(t, cmd); code != 1 || strings.TrimSpace(errs.String()) != "holdfast: interrupted" && !strings.Contains(errs.String(), "interrupted") {
			t.Errorf("%v: exit code %d, %q", args, code, &errs)
		}
		out.Close()
	}
}

// TestWhatIsNoFileIsNotReadAsOne promises that a file is read by its path in a folder, that a command says what is
// wrong with a folder on standard output, a path or other content that is no file, in every form, and that the node
// logs no error of its own.
func TestWhatIsNoFileIsNotReadAsOne(t *testing.T) {
	t.Parallel() // a node of its own
	n := harness.Start(t, harness.Options{Nodes: 1}).Nodes[0]
	source := harness.StartBoxo(t)
	folder, tree := source.AddFolder([]byte("in a folder")).CID, source.AddDAG("dag-cbor", 2, 2).CID
	for _, root := range []string{folder, tree} {
		n.CLI("pin", "add", root, "--origin", source.Addrs[0], "--wait")
	}
	file := cidOf(t, n.CLI("add", fileOf(t, "a file")))
	for _, text := range []string{file, "/ipfs/" + file, "ipfs://" + file} {
		if out := n.CLI("get", text); out != "a file" {
			t.Errorf("get %s: %q", text, out)
		}
	}
	for _, text := range []string{folder + "/file", "/ipfs/" + folder + "/file", "ipfs://" + folder + "/file"} {
		if out := n.CLI("get", text); out != "in a folder" {
			t.Errorf("get %s: %q", text, out)
		}
	}
	for text, want := range map[string]struct {
		code int
		says string
	}{
		folder: {1, "is a folder"}, "/ipfs/" + folder: {1, "is a folder"}, "ipfs://" + folder + "/": {1, "is a folder"}, tree: {2, "is no file"},
		file + "/more": {1, "does not exist"}, folder + "/more": {1, "does not exist"}, "/ipns/example.org": {2, "IPNS"},
	} {
		if r := n.TryCLI("", "get", text, "-o", "-"); r.Code != want.code || r.Stdout != "" || !oneLine(r.Stderr) || !strings.Contains(r.Stderr, want.says) {
			t.Errorf("get %s: exit code %d, %q, want code %d and %q", text, r.Code, r.Stderr, want.code, want.says)
		}
	}
	if log := n.Log(); strings.Contains(log, "level=ERROR") {
		t.Errorf("the node takes it for its own mistake: %s", log)
	}
	gone := filepath.Join(t.TempDir(), "gone")
	if r := harness.Run(t, nil, "", "status", "--data", gone); r.Code != 1 || !oneLine(r.Stderr) || !strings.Contains(r.Stderr, gone) || !strings.Contains(r.Stderr, "does not exist") {
		t.Errorf("a data folder that is not there: %+v", r)
	}
	if r := harness.Run(t, nil, "", "status", "--data", t.TempDir()); r.Code != 1 || !strings.Contains(r.Stderr, "no node is running") {
		t.Errorf("a data folder without a node: %+v", r)
	}
	if r := n.TryCLI("", "key", "revoke"); r.Code != 2 || !strings.Contains(r.Stderr, "holdfast key ls") {
		t.Errorf("key revoke without a key: %+v", r)
	}
}
