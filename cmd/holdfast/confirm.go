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

// errUnchanged is the error of a command whose question the user did not answer with yes. The
// command has changed nothing.
var errUnchanged = errors.New("nothing was changed")

// maxAnswer is the maximum length of the answer to a question, in bytes.
const maxAnswer = 1 << 10

// asks reports whether confirm asks the user. It does if standard input is a terminal and the
// flag --yes is absent.
func (a *app) asks(r *removal) bool {
	_, ok := a.terminalIn()
	return ok && !r.yes
}

// confirm prints the lines of what, which describe a removal, and asks the user for confirmation.
// It returns nil if the user answers yes, and also if asks reports false. Otherwise it returns an
// error that wraps errUnchanged: after any other answer, at the end of the input, after Ctrl-C,
// and if there is no terminal that can show the question.
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

// errNoAnswer is the error if the input ends before the user has answered a question.
var errNoAnswer = errors.New("no answer")

// did prints the result of a command to standard output: v as JSON if asJSON is true, and
// otherwise the formatted text as a line.
func (a *app) did(asJSON bool, v any, format string, args ...any) error {
	if asJSON {
		return a.printJSON(v)
	}
	a.say(a.stdout, format+"\n", args...)
	return nil
}
