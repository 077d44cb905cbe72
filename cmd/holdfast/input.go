package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// errInterrupted is what Ctrl-C and the other signals that end the program make of what was
// under way.
var errInterrupted = errors.New("interrupted")

// readerFunc is an io.Reader.
type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// interruptible reads r until ctx ends, and then ends in errInterrupted. A read of a
// terminal or a pipe cannot be ended itself: it is left behind with memory of its own, and
// the process is about to end.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (n int, err error) {
		own := make([]byte, min(len(p), copyBuffer))
		err = unlessInterrupted(ctx, func() (err error) {
			n, err = r.Read(own)
			return err
		})
		if errors.Is(err, errInterrupted) {
			return 0, err // n may be written to yet
		}
		return copy(p, own[:n]), err
	})
}

// unlessInterrupted returns what do returns, or errInterrupted as soon as ctx ends; do then
// goes on behind it, and nothing that it writes to may be looked at.
func unlessInterrupted(ctx context.Context, do func() error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case <-ctx.Done():
		return errInterrupted
	case err := <-done:
		return err
	}
}

// openInput opens a file for reading, which of a named pipe takes until somebody writes to it.
func openInput(ctx context.Context, path string) (*os.File, error) {
	opened := make(chan *os.File, 1)
	err := unlessInterrupted(ctx, func() error {
		f, err := os.Open(path)
		opened <- f
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-opened, nil
}

// readSecretFile reads a small file, which may be a pipe.
func readSecretFile(ctx context.Context, path string) ([]byte, error) {
	f, err := openInput(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	return io.ReadAll(io.LimitReader(interruptible(ctx, f), maxSecretFile))
}

// maxSecretFile is the most bytes of a file with a token.
const maxSecretFile = 64 << 10

// terminalIn is standard input when a person types there.
func (a *app) terminalIn() (*os.File, bool) {
	f, ok := a.stdin.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// firstLine reads one line, and the end of it, of limit bytes at the most. At the end of the
// input it returns what there is with io.EOF.
func firstLine(ctx context.Context, r io.Reader, limit int64) (string, error) {
	return bufio.NewReader(io.LimitReader(interruptible(ctx, r), limit)).ReadString('\n')
}

// dialog is where the person at standard input reads a question: standard error or standard
// output, or the terminal of the process where both are redirected. The caller calls done.
func (a *app) dialog() (w io.Writer, done func(), err error) {
	for _, w := range []io.Writer{a.stderr, a.stdout} {
		if isTerminal(w) {
			return w, func() {}, nil
		}
	}
	tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0)
	if err != nil {
		return nil, nil, err
	}
	return tty, func() { _ = tty.Close() }, nil // what was written is there
}

// newPassword asks at a terminal for a password, twice and unseen, or reads the first line
// of what standard input is otherwise.
func (a *app) newPassword(ctx context.Context, prompt string) (string, error) {
	in, ok := a.terminalIn()
	if !ok {
		return readPassword(ctx, a.stdin)
	}
	password, err := a.typedUnseen(ctx, in, prompt)
	if err != nil {
		return "", err
	}
	if password == "" {
		return "", errors.New("no password was typed")
	}
	if err := checkPassword(password); err != nil {
		return "", err
	}
	again, err := a.typedUnseen(ctx, in, "The same again: ")
	if err != nil {
		return "", err
	}
	if again != password {
		return "", errors.New("the two passwords differ: nothing was changed")
	}
	return password, nil
}

// typedUnseen reads a line from a terminal that does not show it meanwhile. However it ends,
// the terminal is as it was before.
func (a *app) typedUnseen(ctx context.Context, in *os.File, prompt string) (string, error) {
	out, done, err := a.dialog()
	if err != nil {
		out, done = a.stderr, func() {} // a program may type, such as expect
	}
	defer done()
	restore, err := a.typist.hide(in, func() { a.say(out, "%s", prompt) })
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	line, err := firstLine(ctx, in, maxPassword+int64(len("\r\n")))
	restored := restore()
	a.say(out, "\n")
	switch {
	case errors.Is(err, errInterrupted):
		return "", err
	case err != nil && !errors.Is(err, io.EOF):
		return "", fmt.Errorf("read password: %w", err)
	case restored != nil:
		return "", fmt.Errorf("read password: %w", restored)
	}
	return strings.TrimRight(line, "\r\n"), nil
}
