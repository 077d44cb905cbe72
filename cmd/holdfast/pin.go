package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/spf13/cobra"
)

func (a *app) pinCommand() *cobra.Command {
	cmd := group("pin", "Manage pins of the operator or of an account", `  holdfast pin add bafybei... --name first --wait
  holdfast pin ls --status failed
  holdfast pin ls --profile work`,
		a.pinAddCommand(), a.pinListCommand(), a.pinGetCommand(), a.pinRemoveCommand(), a.pinImportCommand())
	cmd.Long = "Manages pins. The command pin import is for the node on this machine.\n\n" + placeHelp
	return cmd
}

func userFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "user", "", "`email` of the account, on the node of this machine (default the operator's account)")
	mustNotBeEmpty(cmd, "user")
	mustBeText(cmd, "user")
}

func (a *app) pinAddCommand() *cobra.Command {
	var (
		user    string
		where   *remote
		request client.Pin
		meta    []string
		wait    bool
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "add CID",
		Short: "Pin content from the IPFS network",
		Long: `Pins the DAG under CID: nodes of the cluster fetch its blocks and keep them.
The command prints the id of the pin and returns. With --wait it waits until
enough copies are durable; if the pin fails, it prints the reason and exits 1.
Ctrl-C ends the wait and leaves the pin in place.

With --until the cluster keeps the content for a time only and then removes the
pin. To keep it longer, add the CID again with a later end before that: nothing
is fetched again.`,
		Example: `  holdfast pin add bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi
  holdfast pin add bafybei... --name first --origin /ip4/203.0.113.7/tcp/4001/p2p/12D3KooW... --wait
  holdfast pin add bafybei... --until 720h`,
		Args: arguments("CID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.placeOf(cmd, where, user)
			if err != nil {
				return err
			}
			defer o.close()
			if request.CID, err = plainCID(called(cmd), args[0]); err != nil {
				return err
			}
			if request.Meta, err = metaPairs(called(cmd), meta); err != nil {
				return err
			}
			pin, err := o.AddPin(cmd.Context(), user, request)
			if err != nil {
				return err
			}
			if !asJSON {
				a.say(a.stdout, "%s\n", pin.RequestID) // before the wait, so that an interrupted user knows the id
			}
			if wait {
				pin, err = a.waitPinned(cmd.Context(), o, user, pin)
			}
			if asJSON {
				err = errors.Join(a.printJSON(pin), err)
			}
			return err
		},
	}
	where = a.remoteFlags(cmd)
	userFlag(cmd, &user)
	cmd.Flags().StringVar(&request.Name, "name", "", "`name` of the pin")
	cmd.Flags().StringArrayVar(&request.Origins, "origin", nil, "`multiaddr` with /p2p/ of a peer that has the content (repeatable)")
	mustNotBeEmpty(cmd, "origin")
	cmd.Flags().StringVar(&request.Until, "until", "", "`end` of the pin: a time such as 2027-01-31T12:00:00Z, or how long from now, such as 720h")
	mustNotBeEmpty(cmd, "until")
	cmd.Flags().StringArrayVar(&meta, "meta", nil, "`key=value` for the meta of the pin (repeatable)")
	mustBeText(cmd, "name", "origin", "until", "meta")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the pin is pinned or has failed")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// waitPinned waits until the pin is pinned and returns its last state. If the pin fails, or ctx
// ends, it returns the last known state and an error with the reason. The node continues to fetch
// the pin after ctx ends.
func (a *app) waitPinned(ctx context.Context, o pinner, user string, pin client.PinStatus) (client.PinStatus, error) {
	bar := a.newSpinner(pin.Status)
	last, err := o.WaitPin(ctx, user, pin.RequestID, func(p client.PinStatus) {
		bar.Describe(printable(p.Status + " " + p.Info["status_details"]))
	})
	_ = bar.Finish() // it is only for the eye
	if last.RequestID != "" {
		pin = last
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = fmt.Errorf("%w: pin %s continues, see holdfast pin get", errInterrupted, pin.RequestID)
	}
	if err == nil && pin.Status == "failed" {
		err = fmt.Errorf("pin %s failed: %s", pin.RequestID, printable(pin.Info["status_details"]))
	}
	return pin, err
}

// pinStates are the states of a pin. A pin is queued first, then pinning, and ends as pinned or
// failed.
var pinStates = []string{"queued", "pinning", "pinned", "failed"}

// nameMatches are the ways in which the Pinning Service API compares names.
var nameMatches = []string{"exact", "iexact", "partial", "ipartial"}

// checkFilter validates the flags that select pins. It stores the split and parsed values in f.
// meta are the values of --meta.
func checkFilter(command string, f *client.PinFilter, meta []string) (err error) {
	f.Statuses = words(f.Statuses)
	for _, s := range f.Statuses {
		if !slices.Contains(pinStates, s) {
			return usagef("%s: --status %q is not one of %s", command, s, strings.Join(pinStates, ", "))
		}
	}
	f.CIDs = words(f.CIDs)
	for i, text := range f.CIDs {
		if f.CIDs[i], err = plainCID(command, text); err != nil {
			return err
		}
	}
	switch {
	case f.Match != "" && !slices.Contains(nameMatches, f.Match):
		return usagef("%s: --match %q is not one of %s", command, f.Match, strings.Join(nameMatches, ", "))
	case f.Match != "" && f.Name == "":
		return usagef("%s: --match needs --name", command)
	}
	f.Meta, err = metaPairs(command, meta)
	return err
}

// metaPairs parses values of --meta, which have the form key=value. It returns nil if there are
// none.
func metaPairs(command string, given []string) (meta map[string]string, err error) {
	for _, pair := range given {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" {
			return nil, usagef("%s: --meta %q is not key=value", command, pair)
		}
		if _, twice := meta[k]; twice {
			return nil, usagef("%s: --meta has %q twice", command, k)
		}
		if meta == nil {
			meta = map[string]string{}
		}
		meta[k] = v
	}
	return meta, nil
}

func (a *app) pinListCommand() *cobra.Command {
	var (
		user   string
		where  *remote
		filter client.PinFilter
		meta   []string
		limit  int
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List pins, newest first",
		Example: `  holdfast pin ls
  holdfast pin ls --status failed --user ann@example.org --json
  holdfast pin ls --name backup --match partial
  holdfast pin ls --meta app=photos --meta year=2026`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFilter(called(cmd), &filter, meta); err != nil {
				return err
			}
			if limit < 0 {
				return usagef("%s: --limit %d is a negative number", called(cmd), limit)
			}
			o, err := a.placeOf(cmd, where, user)
			if err != nil {
				return err
			}
			defer o.close()
			pins, more, err := listPins(o.Pins(cmd.Context(), user, filter), limit)
			if err != nil {
				return err
			}
			if asJSON {
				err = a.printJSON(notNil(pins))
			} else {
				writePins(a.stdout, paletteOf(a.stdout, a.environ), pins)
			}
			if more {
				a.say(a.stderr, "there are more pins; --limit 0 lists all\n")
			}
			return err
		},
	}
	where = a.remoteFlags(cmd)
	userFlag(cmd, &user)
	cmd.Flags().StringSliceVar(&filter.Statuses, "status", pinStates, "`states` of the pins to list, joined by commas")
	mustHaveEntries(cmd, "status")
	completeLists(cmd, "status", pinStates...)
	cmd.Flags().StringSliceVar(&filter.CIDs, "cid", nil, "only pins of these `CIDs`, joined by commas, at most 10")
	mustHaveEntries(cmd, "cid")
	cmd.Flags().StringVar(&filter.Name, "name", "", "only pins with this `name`")
	mustNotBeEmpty(cmd, "name")
	cmd.Flags().StringVar(&filter.Match, "match", "", "`way` to compare names: exact, iexact (letter case aside), partial (contains) or ipartial (default exact)")
	mustNotBeEmpty(cmd, "match")
	completeValues(cmd, "match", nameMatches...)
	cmd.Flags().StringArrayVar(&meta, "meta", nil, "only pins with this `key=value` in their meta (repeatable)")
	mustBeText(cmd, "name", "meta")
	cmd.Flags().IntVar(&limit, "limit", defaultPinLimit, "largest `number` of pins to list; 0 means all")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// defaultPinLimit is the default of --limit.
const defaultPinLimit = 1000

// listPins returns the first limit pins of all, or every pin if limit is 0. more reports whether
// there are further pins.
func listPins(all iter.Seq2[client.PinStatus, error], limit int) (pins []client.PinStatus, more bool, err error) {
	for pin, err := range all {
		switch {
		case err != nil:
			return nil, false, err
		case limit > 0 && len(pins) == limit:
			return pins, true, nil
		}
		pins = append(pins, pin)
	}
	return pins, false, nil
}

// writePins prints a table of pins. The table has the column UNTIL only if at least one pin
// expires.
func writePins(w io.Writer, p palette, pins []client.PinStatus) {
	t := table{head: []string{"REQUEST ID", "STATUS", "CREATED", "CID", "NAME"}, states: 1}
	ends := slices.ContainsFunc(pins, func(pin client.PinStatus) bool { return pin.Info["pinned_until"] != "" })
	if ends {
		t.head = slices.Insert(t.head, 3, "UNTIL")
	}
	for _, pin := range pins {
		cells := []string{pin.RequestID, pin.Status, pin.Created, printable(pin.Pin.CID), printable(pin.Pin.Name)}
		if ends {
			cells = slices.Insert(cells, 3, cmp.Or(printable(pin.Info["pinned_until"]), "-"))
		}
		t.add(cells...)
	}
	t.write(w, p)
}

// printable replaces characters with ? that are dangerous in text of unknown origin: control
// characters, which could control the terminal, and bidirectional control characters, which could
// make the text look different from what it is.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return '?'
		}
		return r
	}, text)
}

func (a *app) pinGetCommand() *cobra.Command {
	var (
		user   string
		where  *remote
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "get ID",
		Short:   "Show one pin",
		Long:    "Shows one pin. ID is the id of the pin, which holdfast pin ls lists.",
		Example: "  holdfast pin get 5ab0c7d8-2f44-4c53-9d0f-2d6f3f4a9f0e --json",
		Args:    arguments("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.placeOf(cmd, where, user)
			if err != nil {
				return err
			}
			defer o.close()
			pin, err := o.Pin(cmd.Context(), user, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(pin)
			}
			writePin(a.stdout, paletteOf(a.stdout, a.environ), pin)
			return nil
		},
	}
	where = a.remoteFlags(cmd)
	userFlag(cmd, &user)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func writePin(w io.Writer, p palette, pin client.PinStatus) {
	row := func(what, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(w, "%s  %s\n", p.dim(pad(what, len("delegate"))), value)
		}
	}
	row("id", pin.RequestID)
	row("cid", printable(pin.Pin.CID))
	row("name", printable(pin.Pin.Name))
	row("status", p.state(pin.Status))
	row("details", printable(pin.Info["status_details"]))
	size := pin.Info["dag_size"]
	if n, err := strconv.ParseUint(size, 10, 64); err == nil {
		size = sizeFor(w, n)
	}
	row("size", printable(size))
	row("created", pin.Created)
	row("until", printable(pin.Info["pinned_until"]))
	for _, k := range slices.Sorted(maps.Keys(pin.Pin.Meta)) {
		row("meta", printable(k+"="+pin.Pin.Meta[k]))
	}
	for _, o := range pin.Pin.Origins {
		row("origin", printable(o))
	}
	for _, d := range pin.Delegates {
		row("delegate", printable(d))
	}
}

func (a *app) pinRemoveCommand() *cobra.Command {
	var (
		user  string
		where *remote
		r     *removal
	)
	cmd := &cobra.Command{
		Use:   "rm ID",
		Short: "Remove a pin",
		Long: `Removes a pin. The cluster deletes the content when no other pin and no object
refers to it. On a terminal the command asks first. ID is the id of the pin,
which holdfast pin ls lists.`,
		Example: "  holdfast pin rm 5ab0c7d8-2f44-4c53-9d0f-2d6f3f4a9f0e",
		Args:    arguments("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.placeOf(cmd, where, user)
			if err != nil {
				return err
			}
			defer o.close()
			pin, err := o.Pin(cmd.Context(), user, args[0])
			if err != nil {
				return err
			}
			what := fmt.Sprintf("%s%s of %s", pin.RequestID, inQuotes(pin.Pin.Name), printable(pin.Pin.CID))
			size := ""
			if bytes, err := strconv.ParseUint(pin.Info["dag_size"], 10, 64); err == nil {
				size = ", " + humanBytes(bytes)
			}
			if err := a.confirm(cmd.Context(), r, fmt.Sprintf("This removes the pin %s: %s%s.", what, pin.Status, size)); err != nil {
				return err
			}
			if err := o.RemovePin(cmd.Context(), user, args[0]); err != nil {
				return err
			}
			return a.did(r.json, pin, "removed pin %s", what)
		},
	}
	r = removalFlags(cmd)
	where = a.remoteFlags(cmd)
	userFlag(cmd, &user)
	return cmd
}
