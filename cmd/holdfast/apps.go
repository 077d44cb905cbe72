package main

import (
	"fmt"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/spf13/cobra"
)

func (a *app) appCommand() *cobra.Command {
	return group("app", "Register apps that may ask people for an API key", `  holdfast app add photos --redirect https://photos.example/done
  holdfast app ls
  holdfast app rm photos`, a.appAddCommand(), a.appListCommand(), a.appRemoveCommand())
}

func (a *app) appAddCommand() *cobra.Command {
	var (
		request client.NewApp
		scopes  []string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "add NAME --redirect URI",
		Short: "Register an app",
		Long: `Registers an app. It sends people to GET /get-key?redirect=URI of the web
console, where they sign in and let it have an API key. The key goes to
URI?key=KEY.

The cluster compares the URI byte for byte, but for its query. It is https, a
scheme of the app's own (myapp://done), or http://127.0.0.1:*/path for a program
on the person's own machine, at any port.`,
		Example: `  holdfast app add photos --redirect https://photos.example/done
  holdfast app add backup --redirect http://127.0.0.1:*/done --scope storage:read`,
		Args: arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(request.Redirects) == 0 {
				return usagef("%s: --redirect is missing (see %s --help)", called(cmd), cmd.CommandPath())
			}
			o, err := a.operator()
			if err != nil {
				return err
			}
			request.Name, request.Scopes = args[0], words(scopes)
			added, err := o.AddApp(cmd.Context(), request)
			if err != nil {
				return err
			}
			return a.did(asJSON, added, "%s", printable(added.Name))
		},
	}
	cmd.Flags().StringArrayVar(&request.Redirects, "redirect", nil, "`URI` to which the key may go; repeatable (required)")
	cmd.Flags().StringSliceVar(&scopes, "scope", []string{"storage:read", "storage:write"}, "`scopes` of the app's keys, joined by commas or spaces: "+strings.Join(keyScopes, ", "))
	jsonFlag(cmd, &asJSON)
	mustHaveEntries(cmd, "scope")
	completeLists(cmd, "scope", keyScopes...)
	mustBeText(cmd, "scope")
	return cmd
}

func (a *app) appListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the registered apps",
		Long:    "Lists the registered apps with the redirect URIs to which their keys may go.",
		Example: "  holdfast app ls --json",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			apps, err := o.Apps(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(notNil(apps))
			}
			t := table{head: []string{"NAME", "SCOPE", "CREATED", "REDIRECTS"}, states: -1}
			for _, v := range apps {
				t.add(printable(v.Name), v.Scope, v.Created, strings.Join(v.Redirects, " "))
			}
			t.write(a.stdout, paletteOf(a.stdout, a.environ))
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) appRemoveCommand() *cobra.Command {
	var r *removal
	cmd := &cobra.Command{
		Use:     "rm NAME",
		Short:   "Remove an app",
		Long:    "Removes an app: it can ask for no more keys. Keys that it has stay valid;\nholdfast key ls lists them by its name. On a terminal the command asks first.",
		Example: "  holdfast app rm photos",
		Args:    arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.operator()
			if err != nil {
				return err
			}
			if err := a.confirm(cmd.Context(), r, fmt.Sprintf("This removes the app %s. Its keys stay valid.", printable(args[0]))); err != nil {
				return err
			}
			if err := o.RemoveApp(cmd.Context(), args[0]); err != nil {
				return err
			}
			return a.did(r.json, struct {
				Name string `json:"name"`
			}{args[0]}, "removed app %s", printable(args[0]))
		},
	}
	r = removalFlags(cmd)
	return cmd
}
