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

// errInterrupted is the error of an operation that Ctrl-C or another signal interrupted.
var errInterrupted = errors.New("interrupted")

// readerFunc is a function that implements io.Reader.
type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// interruptible returns a reader that reads from r and returns errInterrupted when ctx ends. A
// read of a terminal or a pipe cannot be cancelled, so a pending read of r continues in the
// background until the process ends. It reads into a buffer of its own.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (n int, err error) {
		own := make([]byte, min(len(p), copyBuffer))
		err = unlessInterrupted(ctx, func() (err error) {
			n, err = r.Read(own)
			return err
		})
		if errors.Is(err, errInterrupted) {
			return 0, err // the read in the background may still write n
		}
		return copy(p, own[:n]), err
	})
}

// unlessInterrupted runs do and returns its error, or errInterrupted as soon as ctx ends. In the
// second case do continues in the background, so the caller must not read variables that do
// writes.
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

// openInput opens a file for reading. For a named pipe it waits until another process opens the
// pipe for writing, or until ctx ends.
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

// readSecretFile returns the content of a file or pipe, and no more than its first maxSecretFile
// bytes.
func readSecretFile(ctx context.Context, path string) ([]byte, error) {
	f, err := openInput(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	return io.ReadAll(io.LimitReader(interruptible(ctx, f), maxSecretFile))
}

// maxSecretFile is the maximum length of a file with a token, a passphrase or an identity, in
// bytes.
const maxSecretFile = 64 << 10

// terminalIn returns standard input and whether it is a terminal.
func (a *app) terminalIn() (*os.File, bool) {
	f, ok := a.stdin.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// firstLine reads from r up to and including the first line end, and at most limit bytes. If
// there is no line end, it returns what it has read, and io.EOF.
func firstLine(ctx context.Context, r io.Reader, limit int64) (string, error) {
	return bufio.NewReader(io.LimitReader(interruptible(ctx, r), limit)).ReadString('\n')
}

// dialog returns a terminal on which a question can be shown: standard error, or standard output,
// or /dev/tty if both are redirected. The caller calls done when it needs w no longer.
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

// newPassword reads a new password. If standard input is a terminal, it asks the user to type the
// password twice and hides the input. Otherwise it reads the first line of standard input.
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
		return "", errors.New("the password is empty")
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

// maxTyped is the maximum length of a typed line in bytes. Terminals have the same limit.
const maxTyped = 4 << 10

// typedUnseen shows prompt, reads a line from a terminal, and hides the input. It always restores
// the settings of the terminal.
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
	line, err := firstLine(ctx, in, maxTyped+int64(len("\r\n")))
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
