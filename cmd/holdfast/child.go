package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Limits for the processes that the demo starts.
const (
	childGrace    = 15 * time.Second // time from SIGTERM to SIGKILL
	signalGrace   = time.Second      // time from the end of a process by Ctrl-C until this program learns of the signal
	childLogBytes = 4 << 10          // bytes that failure reads at the end of a log to find its last line
)

// child is a process that the demo has started. Its output goes to a file.
type child struct {
	name string
	log  string // path of the log file
	cmd  *exec.Cmd
	done chan struct{} // closed once the process has ended and its exit status is known
}

// startChild starts cmd as a process called name in messages. It appends the standard error of
// cmd to the file log, and also the standard output unless cmd redirects it. On Linux the kernel
// kills the process when this program ends, even after a crash. The kernel binds that to the
// thread that started the process, so startChild keeps this thread alive.
func startChild(name, log string, cmd *exec.Cmd) (*child, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer func() { _ = f.Close() }() // the process has its own by then
	cmd.Stderr = f
	if cmd.Stdout == nil {
		cmd.Stdout = f
	}
	cmd.SysProcAttr = childAttributes()
	c := &child{name: name, log: log, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its state says how it ended
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// ended reports whether the process has ended.
func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// kill ends the process with SIGKILL.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", c.name, err)
	}
	<-c.done
	return nil
}

// stop sends SIGTERM to the process and waits until it has ended. After childGrace it kills the
// process and returns an error.
func (c *child) stop() error {
	if err := terminate(c.cmd.Process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", c.name, err)
	}
	late := time.NewTimer(childGrace)
	defer late.Stop()
	select {
	case <-c.done:
		return nil
	case <-late.C:
		return errors.Join(fmt.Errorf("%s did not end within %v", c.name, childGrace), c.kill())
	}
}

// failure returns the error for a process that has ended unexpectedly. The error contains the
// exit status and the last line of the log.
func (c *child) failure() error {
	text := fmt.Sprintf("%s ended: %v", c.name, c.cmd.ProcessState)
	f, err := os.Open(c.log)
	if err != nil {
		return errors.New(text)
	}
	defer func() { _ = f.Close() }() // only read from
	if info, err := f.Stat(); err == nil && info.Size() > childLogBytes {
		_, _ = f.Seek(-childLogBytes, io.SeekEnd) // at worst its beginning is shown
	}
	end, _ := io.ReadAll(io.LimitReader(f, childLogBytes)) // what there is will do
	lines := bytes.Split(bytes.TrimSpace(end), []byte("\n"))
	return fmt.Errorf("%s; its last line: %s", text, lines[len(lines)-1])
}

// end returns the error for a process that has ended while ctx was not seen to have ended. A Ctrl-C
// that comes between fork and exec reaches the new process too, since it is in the process group of
// this program for that moment. If SIGINT ended the process and ctx ends within signalGrace, end
// returns the error of ctx, otherwise c.failure().
func (c *child) end(ctx context.Context) error {
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGINT {
		late := time.NewTimer(signalGrace)
		defer late.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
		}
	}
	return c.failure()
}

// until calls cond, and repeats the call after the interval every, until cond returns true. If
// ctx ends first, until returns the error of ctx joined with the last error of cond. If the
// process c ends first, until returns c.end(ctx). c may be nil.
func until(ctx context.Context, every time.Duration, c *child, cond func(ctx context.Context) (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := cond(ctx)
		if ok {
			return nil
		}
		if c != nil && c.ended() {
			return c.end(ctx)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// withoutSettings returns environ without the variables that begin with HOLDFAST_, so that the
// settings in the user's shell do not affect the nodes of the demo.
func withoutSettings(environ []string) []string {
	var kept []string
	for _, entry := range environ {
		if !strings.HasPrefix(entry, "HOLDFAST_") {
			kept = append(kept, entry)
		}
	}
	return kept
}
