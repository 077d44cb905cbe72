package main

import "github.com/spf13/cobra"

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
24 hours, and replaces an earlier one for the same e-mail.`,
		Example: "  holdfast user link ann@example.org",
		Args:    arguments("EMAIL"),
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
	return cmd
}
