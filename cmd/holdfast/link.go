package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) consoleCommand() *cobra.Command {
	return group("console", "Open the web console", "  holdfast console link", a.consoleLinkCommand())
}

func (a *app) consoleLinkCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "link",
		Short: "Print a one-time link that signs in as the operator",
		Long: `Prints a link to the web console that signs in as the local operator's account,
which is an administrator. It works once, on any node, within 10 minutes. The
link begins with console.url, or without that setting with the address on which
the node listens.`,
		Example: "  holdfast console link",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			l, err := o.CreateConsoleLink(cmd.Context())
			if err != nil {
				return err
			}
			return a.did(asJSON, l, "%s", l.URL)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) userLinkCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "link EMAIL",
		Short: "Print a one-time link for a new password, or an invitation",
		Long: `Prints a link to the web console with which the person sets a new password. For
an e-mail without an account it is an invitation: the person opens the account,
if console.sign_up is invited or open. The link works once, on any node, within
24 hours, and replaces an earlier one for the same e-mail. The commands below it
list the links that can be used, and revoke one.`,
		Example: `  holdfast user link ann@example.org
  holdfast user link ls`,
		Args: arguments("EMAIL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			l, err := o.CreateUserLink(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.did(asJSON, l, "%s", l.URL)
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.AddCommand(a.linkListCommand(), a.linkRemoveCommand())
	return cmd
}

func (a *app) linkListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the one-time links that can be used",
		Long: `Lists the one-time links of all people that can be used, with what each is for.
The links themselves are not kept. Setup links, which holdfast run prints, are
not on the list: they end when there is an administrator.`,
		Example: "  holdfast user link ls --json",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			links, err := o.Links(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(notNil(links))
			}
			t := table{head: []string{"EMAIL", "FOR", "EXPIRES", "ID"}, states: -1}
			for _, l := range links {
				t.add(printable(l.Email), l.Purpose, l.Expires, l.ID)
			}
			t.write(a.stdout, paletteOf(a.stdout, a.environ))
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) linkRemoveCommand() *cobra.Command {
	var r *removal
	cmd := &cobra.Command{
		Use:     "rm ID",
		Short:   "Revoke a one-time link",
		Long:    "Revokes a one-time link: when the command returns, no node takes it. The id is\nthat of holdfast user link ls. On a terminal the command asks first.",
		Example: "  holdfast user link rm 3q2-7wAAAAB8Y0Zx1f0n",
		Args:    arguments("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			if err := a.confirm(cmd.Context(), r, fmt.Sprintf("This revokes the one-time link %s.", printable(args[0]))); err != nil {
				return err
			}
			if err := o.RevokeLink(cmd.Context(), args[0]); err != nil {
				return err
			}
			return a.did(r.json, struct {
				ID string `json:"id"`
			}{args[0]}, "revoked link %s", printable(args[0]))
		},
	}
	r = removalFlags(cmd)
	return cmd
}
