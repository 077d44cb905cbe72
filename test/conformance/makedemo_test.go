//go:build conformance && linux

package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestMakeDemoEndsByCtrlC promises that Ctrl-C ends make demo by the signal, at its beginning and at its end, and
// leaves nothing behind. The programs are built already. What it shows ends with what the demo says: make adds no
// error.
func TestMakeDemoEndsByCtrlC(t *testing.T) {
	t.Parallel() // it mostly waits
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed")
	}
	makefile, err := filepath.Abs(filepath.FromSlash("../../Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{"holdfast": harness.Binary(t), "foreign": harness.ForeignBinary(t)} {
		if err := os.Symlink(program, filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []string{"Holdfast demo", "Ctrl-C ends everything"} {
		s := takeSeat(t)
		cmd := exec.Command("make", "-f", makefile, "GO=true", "demo")
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TERM=dumb"}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = s.terminal, s.terminal, s.terminal
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s.sees(at)
		s.types(ctrlC)
		ended(t, cmd)
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGINT {
			t.Errorf("at %q make ended with %v", at, cmd.ProcessState)
		}
		if _, err := s.terminal.WriteString("\x00"); err != nil { // the end of what is shown
			t.Fatal(err)
		}
		s.sees("\x00")
		shown := strings.TrimSpace(strings.TrimSuffix(s.shown.String(), "\x00"))
		last := strings.TrimSpace(shown[strings.LastIndex(shown, "\n")+1:])
		folder, all := strings.CutPrefix(last, "All ended, ")
		folder, gone := strings.CutSuffix(folder, " is gone.")
		if !all || !gone || strings.Contains(shown, "***") {
			t.Errorf("at %q it ends with %q:\n%s", at, last, shown)
		} else if _, err := os.Stat(folder); !os.IsNotExist(err) {
			t.Errorf("%s is left behind: %v", folder, err)
		}
	}
}
