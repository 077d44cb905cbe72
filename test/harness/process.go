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
	"time"
)

// logBytes is how much of a process's output is kept, unless Options say
// otherwise: its end.
const logBytes = 256 << 10

// process is one child. It dies with the test process, even when that is
// killed.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has been reaped
	err  error         // of Wait; read after done
}

// startProcess starts cmd in a namespace, nil is the test's, by a thread that
// lives as long as the child: Linux sends the parent-death signal when the
// starting thread ends.
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

// signal sends s to the child, which may have ended already.
func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %d: %w", p.cmd.Process.Pid, err)
	}
	return nil
}

// wait waits for the end and returns the exit code; a signal's death is -1.
func (p *process) wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("process %d runs on: %w", p.cmd.Process.Pid, ctx.Err())
	}
}

// ended says whether the child has been reaped.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// endGrace is how long a child may take to end by itself at the test's end.
const endGrace = 15 * time.Second

// end asks the child to end, then kills it.
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

// tail keeps the last bytes of what is written to it.
type tail struct {
	most int // bytes that are kept; 0 means logBytes

	mu  sync.Mutex
	buf []byte
}

// Write never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if extra := len(t.buf) - cmp.Or(t.most, logBytes); extra > 0 {
		t.buf = bytes.Clone(t.buf[extra:])
	}
	return len(b), nil
}

// String returns what has been kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
