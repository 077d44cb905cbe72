package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/spf13/cobra"
)

// maxPassword is the maximum length of a password in bytes.
const maxPassword = 1 << 10

func (a *app) userCommand() *cobra.Command {
	return group("user", "Manage accounts", `  holdfast user add ann@example.org
  holdfast user show ann@example.org
  holdfast user ls`, a.userAddCommand(), a.userListCommand(), a.userShowCommand(), a.userRemoveCommand(), a.userDisableCommand(), a.userEnableCommand(), a.userPasswordCommand(), a.userLinkCommand(), a.userQuotaCommand(), a.userGrantCommand(),
		a.userRefundCommand(), a.userCorrectCommand(), a.userLedgerCommand())
}

func (a *app) userAddCommand() *cobra.Command {
	var fromStdin, asJSON bool
	cmd := &cobra.Command{
		Use:   "add EMAIL",
		Short: "Create an account",
		Long: `Creates an account. An account without a password can be used only through API
keys, which holdfast key create makes.`,
		Example: `  holdfast user add ann@example.org
  holdfast user add bob@example.org --password-stdin < password.txt`,
		Args: arguments("EMAIL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			password := ""
			if fromStdin {
				if password, err = a.newPassword(cmd.Context(), "Password: "); err != nil {
					return err
				}
			}
			user, err := o.CreateUser(cmd.Context(), args[0], password)
			if err != nil {
				return err
			}
			return a.did(asJSON, user, "%s", user.Email)
		},
	}
	cmd.Flags().BoolVar(&fromStdin, "password-stdin", false, "read the password from the first line of standard input; on a terminal, ask for it twice without showing it")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// readPassword returns the first line of r as a password. It returns an error if the line is
// empty or checkPassword rejects it.
func readPassword(ctx context.Context, r io.Reader) (string, error) {
	line, err := firstLine(ctx, r, maxPassword+int64(len("\r\n")))
	if errors.Is(err, errInterrupted) {
		return "", err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read password: %w", err)
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", errors.New("no password on the first line of standard input")
	}
	return line, checkPassword(line)
}

// checkPassword returns an error for a password that is too short, too long, or not UTF-8. The
// node rejects the first two as well, but with 400, which the program would report as wrong
// usage. JSON would change bytes that are not UTF-8.
func checkPassword(password string) error {
	if utf8.RuneCountInString(password) < client.MinPassword {
		return fmt.Errorf("the password is shorter than %d characters", client.MinPassword)
	}
	if len(password) > maxPassword {
		return fmt.Errorf("the password is longer than %d bytes", maxPassword)
	}
	if !utf8.ValidString(password) {
		return errors.New("the password is not UTF-8")
	}
	return nil
}

func (a *app) userListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the accounts",
		Example: "  holdfast user ls --json",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			users, err := o.Users(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(notNil(users))
			}
			t := table{head: []string{"EMAIL", "STATE", "STORED", "ALLOWANCE", "CREDITS", "CREATED", "ID"}, states: -1}
			for _, u := range users {
				allowance := noLimit
				if u.AllowanceBytes != nil {
					allowance = sizeFor(a.stdout, *u.AllowanceBytes)
				}
				state := "active"
				if u.Disabled != "" {
					state = "disabled"
				}
				t.add(u.Email, state, sizeFor(a.stdout, u.StoredBytes), allowance, strconv.FormatUint(u.Credits, 10), u.Created, u.ID)
			}
			t.write(a.stdout, paletteOf(a.stdout, a.environ))
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func jsonFlag(cmd *cobra.Command, into *bool) {
	cmd.Flags().BoolVar(into, "json", false, "print JSON")
}

// notNil returns list, or an empty slice if list is nil, because JSON encodes a nil slice as
// null.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
