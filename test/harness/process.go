package harness

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// logBytes is the number of bytes at the end of a process's output that are kept, unless
// Options.LogBytes sets another number.
const logBytes = 256 << 10

// process is one child process. It is killed when the test process ends, even if the test process
// is killed.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has been reaped
	err  error         // the result of cmd.Wait; valid after done is closed
}

// startProcess starts cmd in a network namespace; nil means that of the test. It starts cmd from a
// thread that lives as long as the child, because Linux kills the child when the thread that
// started it ends.
func startProcess(cmd *exec.Cmd, in *namespace) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		if in == nil {
			defer runtime.UnlockOSThread() // else the thread is of no more use
		}
		err := in.enter()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// signal sends the signal s to the child. It is no error if the child has ended already.
func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %d: %w", p.cmd.Process.Pid, err)
	}
	return nil
}

// wait waits until the child has ended and returns the exit code; -1 means that a signal killed it.
func (p *process) wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("process %d runs on: %w", p.cmd.Process.Pid, ctx.Err())
	}
}

// ended reports whether the child has ended and was waited for.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// endGrace is how long end waits for the child before it kills it.
const endGrace = stopWithin

// end sends SIGTERM to the child. If the child does not end within endGrace, end fails the test and
// kills the child.
func (p *process) end(tb testing.TB) {
	if p.ended() {
		return
	}
	_ = p.signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(context.Background(), endGrace)
	defer cancel()
	if _, err := p.wait(ctx); err != nil {
		tb.Errorf("%s did not end within %s of SIGTERM", p.cmd.Path, endGrace)
		_ = p.signal(syscall.SIGKILL)
		<-p.done
	}
}

// tail is a writer that keeps only the last bytes that were written to it.
type tail struct {
	most int // largest number of kept bytes; 0 means logBytes

	mu  sync.Mutex
	buf []byte
}

// Write implements io.Writer. It never returns an error.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if extra := len(t.buf) - cmp.Or(t.most, logBytes); extra > 0 {
		t.buf = bytes.Clone(t.buf[extra:])
	}
	return len(b), nil
}

// String returns the kept bytes.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
