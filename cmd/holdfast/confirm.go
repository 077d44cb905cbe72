package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// removal is what every command that takes something away can be told.
type removal struct{ yes, json bool }

// removalFlags gives a command the flags of a removal.
func removalFlags(cmd *cobra.Command) *removal {
	r := new(removal)
	cmd.Flags().BoolVar(&r.yes, "yes", false, "do not ask; without a terminal the command never asks")
	jsonFlag(cmd, &r.json)
	return r
}

// errUnchanged is an answer that is not yes.
var errUnchanged = errors.New("nothing was changed")

// maxAnswer is the most bytes of an answer.
const maxAnswer = 1 << 10

// asks tells whether confirm asks: standard input is a terminal, and there is no --yes.
func (a *app) asks(r *removal) bool {
	_, ok := a.terminalIn()
	return ok && !r.yes
}

// confirm shows a person at a terminal what a command takes away and goes on only when the
// answer is yes. Everything else, the end of input and Ctrl-C included, changes nothing, and
// so does a question that nobody would see. It does not ask without a terminal, nor with --yes.
func (a *app) confirm(ctx context.Context, r *removal, what ...string) error {
	in, _ := a.terminalIn()
	if !a.asks(r) {
		return nil
	}
	out, done, err := a.dialog()
	if err != nil {
		return fmt.Errorf("%w: no terminal shows the question; say --yes", errUnchanged)
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

// errNoAnswer is the end of the input.
var errNoAnswer = errors.New("no answer")

// did says what a command has changed: a line for people, or JSON.
func (a *app) did(asJSON bool, v any, format string, args ...any) error {
	if asJSON {
		return a.printJSON(v)
	}
	a.say(a.stdout, format+"\n", args...)
	return nil
}
