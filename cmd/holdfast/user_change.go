package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// noLimit is the word for an allowance without an end.
const noLimit = "unlimited"

func (a *app) userRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm EMAIL",
		Short: "Remove an account with its keys and pins",
		Long: `Removes an account. Its keys are refused by every node when the command
returns; its pins go away after it, and with the last of them the content.`,
		Example: `  holdfast user rm ann@example.org`,
		Args:    arguments("EMAIL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.change(cmd, func(ctx context.Context, o operator) error { return o.RemoveUser(ctx, args[0]) })
		},
	}
}

func (a *app) userPasswordCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "passwd EMAIL",
		Short: "Change the password of an account",
		Long: `Changes the password of an account to the first line of standard input. On a
terminal it is asked for and not shown.`,
		Example: `  holdfast user passwd ann@example.org
  holdfast user passwd bob@example.org < password.txt`,
		Args: arguments("EMAIL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			password, err := a.askPassword("New password: ")
			if err != nil {
				return err
			}
			return a.change(cmd, func(ctx context.Context, o operator) error { return o.SetPassword(ctx, args[0], password) })
		},
	}
}

// askPassword reads a password from a terminal, unseen and after a prompt, or the first
// line of what standard input is otherwise.
func (a *app) askPassword(prompt string) (string, error) {
	f, ok := a.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return readPassword(a.stdin)
	}
	a.say(a.stderr, "%s", prompt)
	password, err := term.ReadPassword(int(f.Fd()))
	a.say(a.stderr, "\n")
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	if len(password) == 0 {
		return "", errors.New("no password was typed")
	}
	return string(password), checkPassword(string(password))
}

func (a *app) userQuotaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "quota EMAIL BYTES",
		Short: "Change how much an account may store without credits",
		Long: `Changes an account's allowance to a number of bytes, or to "unlimited". What
is stored beyond a smaller one stays; new pins are refused until there is room.`,
		Example: `  holdfast user quota ann@example.org 10737418240
  holdfast user quota bob@example.org unlimited`,
		Args: arguments("EMAIL", "BYTES"),
		RunE: func(cmd *cobra.Command, args []string) error {
			bytes, err := strconv.ParseUint(args[1], 10, 63)
			if args[1] == noLimit {
				bytes, err = math.MaxUint64, nil
			}
			if err != nil {
				return usagef("%s: %q is neither a number of bytes nor %q", called(cmd), args[1], noLimit)
			}
			return a.change(cmd, func(ctx context.Context, o operator) error { return o.SetQuota(ctx, args[0], bytes) })
		},
	}
}

func (a *app) userGrantCommand() *cobra.Command {
	var posting string
	cmd := &cobra.Command{
		Use:   "grant EMAIL CREDITS",
		Short: "Give an account credits",
		Long: `Posts credits to an account's ledger. With credits an account may store more
than its allowance. A posting that is named is made once, however often the
command runs.`,
		Example: `  holdfast user grant ann@example.org 100 --posting invoice-2026-17`,
		Args:    arguments("EMAIL", "CREDITS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			credits, err := strconv.ParseUint(args[1], 10, 63)
			if err != nil || credits == 0 {
				return usagef("%s: %q is not a number of credits", called(cmd), args[1])
			}
			return a.change(cmd, func(ctx context.Context, o operator) error { return o.Grant(ctx, args[0], posting, credits) })
		},
	}
	cmd.Flags().StringVar(&posting, "posting", "", "`name` of the grant, so that it is made once")
	mustNotBeEmpty(cmd, "posting")
	mustBeText(cmd, "posting")
	return cmd
}

// change has the node change something about an account.
func (a *app) change(cmd *cobra.Command, do func(context.Context, operator) error) error {
	o, err := a.operator()
	if err != nil {
		return err
	}
	return do(cmd.Context(), o)
}
