package main

import (
	"context"
	"fmt"
	"math"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/spf13/cobra"
)

// noLimit is the word for an allowance without a limit, in arguments and in output.
const noLimit = "unlimited"

func (a *app) userShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show EMAIL|ID",
		Short: "Show one account",
		Long:  "Shows an account with its storage, pins, buckets, keys and sessions. Name it by\nits e-mail, or by the account id in log lines.",
		Example: `  holdfast user show ann@example.org
  holdfast user show 3f0f7f0e-5c1c-4c5e-8d8e-2f9d0c6b1a7e --json`,
		Args: arguments("EMAIL|ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			user, err := o.User(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(user)
			}
			a.showUser(&user)
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// showUser prints the properties of an account, and the numbers of its pins, buckets, objects,
// keys and sessions.
func (a *app) showUser(u *client.UserDetail) {
	p := paletteOf(a.stdout, a.environ)
	rows := [][2]string{
		{"email", u.Email},
		{"id", u.ID},
		{"created", u.Created},
		{"allowance", allowanceOf(u)},
		{"stored", humanBytes(u.StoredBytes)},
		{"coming", humanBytes(u.ComingBytes)},
		{"credits", thousands(u.Credits)},
		{"pins", fmt.Sprintf("%d queued, %d pinning, %d pinned, %d failed", u.Pins.Queued, u.Pins.Pinning, u.Pins.Pinned, u.Pins.Failed)},
		{"buckets", thousands(u.Buckets)},
		{"objects", thousands(u.Objects)},
		{"versions", thousands(u.Versions)},
		{"uploads", thousands(u.Uploads)},
		{"keys", thousands(u.Keys)},
		{"sessions", thousands(u.Sessions)},
	}
	if u.Disabled != "" {
		rows = append(rows, [2]string{"disabled", "since " + u.Disabled})
	}
	if u.ContentEnds != "" {
		rows = append(rows, [2]string{"ends", "the newest content above the allowance, from " + u.ContentEnds + " on, as the credits are used up"})
	}
	for _, row := range rows {
		a.say(a.stdout, "%s  %s\n", p.dim(pad(row[0], len("allowance"))), printable(row[1]))
	}
}

func allowanceOf(u *client.UserDetail) string {
	if u.AllowanceBytes == nil {
		return noLimit
	}
	return fmt.Sprintf("%s (%d bytes)", humanBytes(*u.AllowanceBytes), *u.AllowanceBytes)
}

// belongings returns a text that lists what is deleted together with an account.
func belongings(u *client.UserDetail) string {
	inBuckets := pluralOf(u.Objects, "object")
	if u.Versions > 0 {
		inBuckets += " and " + pluralOf(u.Versions, "old version")
	}
	return fmt.Sprintf("%s, %s with %s, %s, %s stored", pluralOf(u.Pins.Sum(), "pin"), pluralOf(u.Buckets, "bucket"),
		inBuckets, pluralOf(u.Keys, "key"), humanBytes(u.StoredBytes))
}

func (a *app) userRemoveCommand() *cobra.Command {
	var r *removal
	cmd := &cobra.Command{
		Use:   "rm EMAIL",
		Short: "Remove an account with its keys, pins and buckets",
		Long: `Removes an account. On a terminal the command first shows what the account has,
and asks. When the command returns, every node refuses the keys of the account.
The cluster then removes its pins and buckets in the background. It deletes
content when no other pin and no other object refers to it.`,
		Example: `  holdfast user rm ann@example.org
  holdfast user rm ann@example.org --yes`,
		Args: arguments("EMAIL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			user, err := o.User(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := a.confirm(cmd.Context(), r, fmt.Sprintf("This removes the account %s and all it has: %s.", printable(user.Email), belongings(&user))); err != nil {
				return err
			}
			if err := o.RemoveUser(cmd.Context(), user.Email); err != nil {
				return err
			}
			return a.did(r.json, user, "removed account %s: %s", printable(user.Email), belongings(&user))
		},
	}
	r = removalFlags(cmd)
	return cmd
}

func (a *app) userDisableCommand() *cobra.Command {
	var r *removal
	cmd := &cobra.Command{
		Use:   "disable EMAIL",
		Short: "Refuse an account everywhere, but keep what it has",
		Long: `Disables an account. When the command returns, every node refuses the API keys,
the shares and the sessions of the account, and nobody can sign in to it.
Uploads that are under way end; downloads that have begun continue. Pins and
objects stay, IPFS peers read public content, and storage is charged as before.
"user enable" restores the account, without its sessions.`,
		Example: `  holdfast user disable ann@example.org
  holdfast user disable ann@example.org --yes`,
		Args: arguments("EMAIL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			user, err := o.User(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if user.Disabled != "" {
				return a.did(r.json, user, "%s has been disabled since %s: nothing was changed", printable(user.Email), user.Disabled)
			}
			what := fmt.Sprintf("%s and %s", pluralOf(user.Keys, "API key"), pluralOf(user.Sessions, "session"))
			err = a.confirm(cmd.Context(), r, fmt.Sprintf("This disables the account %s: every node refuses its %s, and its shares.", printable(user.Email), what),
				"Its pins and objects stay. holdfast user enable gives the account back, without its sessions.")
			if err != nil {
				return err
			}
			return a.change(cmd, r.json, user.Email, func(ctx context.Context, o operator) error { return o.SetDisabled(ctx, user.Email, true) },
				func(u *client.UserDetail) string {
					return fmt.Sprintf("disabled %s: every node refuses its %s", u.Email, what)
				})
		},
	}
	r = removalFlags(cmd)
	return cmd
}

func (a *app) userEnableCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "enable EMAIL",
		Short: "Enable a disabled account again",
		Long: `Enables an account that was disabled. Its API keys, shares and one-time links
are accepted again as they were. Its people sign in anew.`,
		Example: "  holdfast user enable ann@example.org",
		Args:    arguments("EMAIL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.change(cmd, asJSON, args[0], func(ctx context.Context, o operator) error { return o.SetDisabled(ctx, args[0], false) },
				func(u *client.UserDetail) string {
					return fmt.Sprintf("enabled %s, with %s", u.Email, pluralOf(u.Keys, "API key"))
				})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) userPasswordCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "passwd EMAIL",
		Short: "Change the password of an account",
		Long: `Changes the password of an account and ends its sessions. The command reads the
password from the first line of standard input. On a terminal it asks for the
password twice and does not show it.`,
		Example: `  holdfast user passwd ann@example.org
  holdfast user passwd bob@example.org < password.txt`,
		Args: arguments("EMAIL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			password, err := a.newPassword(cmd.Context(), "New password: ")
			if err != nil {
				return err
			}
			return a.change(cmd, asJSON, args[0], func(ctx context.Context, o operator) error { return o.SetPassword(ctx, args[0], password) },
				func(u *client.UserDetail) string {
					return "changed the password of " + u.Email + "; its sessions have ended"
				})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) userQuotaCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "quota EMAIL BYTES",
		Short: "Change the allowance of an account",
		Long: `Changes the allowance of an account, which is the size that it can store
without credits. BYTES is a size such as 10GiB or 500MB, a number of bytes, or
"unlimited". If the account already stores more, its content stays, and the
cluster refuses new content until there is room.`,
		Example: `  holdfast user quota ann@example.org 10GiB
  holdfast user quota bob@example.org unlimited`,
		Args: arguments("EMAIL", "BYTES"),
		RunE: func(cmd *cobra.Command, args []string) error {
			bytes := uint64(math.MaxUint64)
			if args[1] != noLimit {
				size, err := config.ParseSize(args[1])
				if err != nil {
					return usagef("%s: %v, and not %q", called(cmd), err, noLimit)
				}
				bytes = uint64(size)
			}
			return a.change(cmd, asJSON, args[0], func(ctx context.Context, o operator) error { return o.SetQuota(ctx, args[0], bytes) },
				func(u *client.UserDetail) string {
					return fmt.Sprintf("allowance of %s: %s; %s are stored", u.Email, allowanceOf(u), humanBytes(u.StoredBytes))
				})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// change runs do, which changes the account email, and then prints the account: as JSON, or as
// the text that said returns for it. If do succeeds and the account cannot be read afterwards,
// change prints a warning and returns nil, so that scripts do not repeat the change.
func (a *app) change(cmd *cobra.Command, asJSON bool, email string, do func(context.Context, operator) error, said func(*client.UserDetail) string) error {
	o, err := a.operator()
	if err != nil {
		return err
	}
	if err := do(cmd.Context(), o); err != nil {
		return err
	}
	user, err := o.User(cmd.Context(), email)
	if err != nil { // exit 0, because a repeated grant would post twice
		a.say(a.stderr, "holdfast: changed the account, but cannot show it: %s\n", oneLine(err.Error()))
		return nil
	}
	return a.did(asJSON, user, "%s", printable(said(&user)))
}
