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
	"time"
)

// Bounds of the demo's processes.
const (
	childGrace    = 15 * time.Second // from SIGTERM to SIGKILL
	childLogBytes = 4 << 10          // of a log's end that is shown when a process fails
)

// child is a process of the demo. Its output goes to a file.
type child struct {
	name string
	log  string // path
	cmd  *exec.Cmd
	done chan struct{} // closed once the process has been reaped
}

// startChild starts cmd. Its standard error, and its standard output unless cmd
// says otherwise, are appended to the file log. On Linux the process dies with
// this one, however that ends; that takes a thread that lives as long.
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

// ended reports whether the process is gone.
func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// kill ends the process without a chance to say goodbye.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", c.name, err)
	}
	<-c.done
	return nil
}

// stop asks the process to end, and ends it when it does not within childGrace.
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

// failure is what is known about a process that ended where it should not have.
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

// until asks every so often whether cond holds; it returns what cond last said
// when ctx ends, and the failure of the process c when that ends first.
func until(ctx context.Context, every time.Duration, c *child, cond func(ctx context.Context) (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := cond(ctx)
		if ok {
			return nil
		}
		if c != nil && c.ended() {
			return c.failure()
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// withoutSettings is environ without the variables of Holdfast, so that those
// of this shell do not reach the demo's nodes.
func withoutSettings(environ []string) []string {
	var kept []string
	for _, entry := range environ {
		if !strings.HasPrefix(entry, "HOLDFAST_") {
			kept = append(kept, entry)
		}
	}
	return kept
}
