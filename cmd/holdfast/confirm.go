package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// removal has the flags of a command that removes something.
type removal struct{ yes, json bool }

// removalFlags adds the flags of a removal to cmd.
func removalFlags(cmd *cobra.Command) *removal {
	r := new(removal)
	cmd.Flags().BoolVar(&r.yes, "yes", false, "do not ask; without a terminal the command never asks")
	jsonFlag(cmd, &r.json)
	return r
}

// errUnchanged is the error after any answer but yes.
var errUnchanged = errors.New("nothing was changed")

// maxAnswer is the maximum length of an answer, in bytes.
const maxAnswer = 1 << 10

// asks reports whether confirm asks: standard input is a terminal, and --yes is not given.
func (a *app) asks(r *removal) bool {
	_, ok := a.terminalIn()
	return ok && !r.yes
}

// confirm prints the lines of what, which describe a removal, and asks for confirmation. It
// returns nil after a yes, and at once if asks reports false. After any other answer, the end
// of the input, Ctrl-C, or without a terminal that can show the question, it returns an error
// that wraps errUnchanged.
func (a *app) confirm(ctx context.Context, r *removal, what ...string) error {
	in, _ := a.terminalIn()
	if !a.asks(r) {
		return nil
	}
	out, done, err := a.dialog()
	if err != nil {
		return fmt.Errorf("%w: no terminal can show the question; give --yes", errUnchanged)
	}
	defer done()
	for _, line := range what {
		a.say(out, "%s\n", line)
	}
	a.say(out, "Go on? [y/N] ")
	answer, err := firstLine(ctx, in, maxAnswer)
	if errors.Is(err, io.EOF) {
		err = errNoAnswer
	}
	if err != nil {
		a.say(out, "\n")
		return fmt.Errorf("%w: %w", errUnchanged, err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errUnchanged
	}
	return nil
}

// errNoAnswer is the error at the end of the input.
var errNoAnswer = errors.New("no answer")

// did prints the result of a command: v as JSON, or a line of text.
func (a *app) did(asJSON bool, v any, format string, args ...any) error {
	if asJSON {
		return a.printJSON(v)
	}
	a.say(a.stdout, format+"\n", args...)
	return nil
}
