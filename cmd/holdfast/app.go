package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes of the program, as contract.md specifies them.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// app is one call of the program, with its environment and its standard streams.
type app struct {
	version string
	environ []string
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
	connect func(dir string) operator // returns a client of the node on a data folder, which dials only when it is used
	// ownFiles makes all files that the process creates afterwards readable only by its user. Nil
	// does nothing.
	ownFiles func()

	typist typist // hides what a user types at prompts

	data    string // value of the flag --data
	chosen  bool   // the command could work on a cluster, and uses the node on this machine
	started bool   // cobra has accepted the command line, so that a later failure is not wrong usage
	misused error  // error for a request for help about a command that does not exist; nil if there was none
}

// usageError reports wrong usage: the arguments of the command line are invalid. The program then
// exits with exitUsage.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// execute runs the program with args and returns the exit code. args do not contain the name of
// the program. execute prints an error on standard error.
func (a *app) execute(ctx context.Context, args []string) int {
	out := &output{Writer: a.stdout}
	a.stdout = out
	defer a.typist.close()
	root := a.root()
	root.SetArgs(args)
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		withoutQuotes(root)
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.misused
	}
	if out.failed != nil && (err == nil || !a.started) { // --version and --help start nothing
		a.say(a.stderr, "holdfast: write output: %s\n", oneLine(out.failed.Error()))
		return exitFailure
	}
	if err == nil {
		return exitOK
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil && !errors.Is(err, errInterrupted) {
		err = errInterrupted
	}
	err = a.hintPlace(err)
	if folder, other := a.folder(); other == nil {
		err = explain(err, folder)
	}
	a.say(a.stderr, "holdfast: %s\n", printable(strings.TrimPrefix(oneLine(err.Error()), "holdfast: "))) // a message may quote a stranger's server
	if !errors.Is(err, errInterrupted) && (!a.started || misused(err)) {
		return exitUsage
	}
	return exitFailure
}

// misused reports whether err means that the arguments are wrong. The program checks most
// arguments itself. The node checks e-mail addresses, CIDs, scopes and names, and answers 400 for
// an invalid one.
func misused(err error) bool {
	var usage *usageError
	var settings *config.Error
	var refused *client.Error
	return errors.As(err, &usage) || errors.As(err, &settings) && settings.Usage() ||
		errors.As(err, &refused) && refused.Status == http.StatusBadRequest
}

// oneLine returns text with its lines joined by semicolons.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "; ")
}

// output wraps standard output and stores the error of the first failed write. A command whose
// output was lost must not exit with 0.
type output struct {
	io.Writer

	failed error
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if o.failed == nil {
		o.failed = err
	}
	return n, err
}

// say prints formatted text to w and ignores write errors. execute reports errors of standard
// output, which output stores. An error of standard error cannot be reported anywhere.
func (a *app) say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}

// printJSON prints v to standard output as an indented JSON document.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// folder returns the data folder that the flag --data, the environment or the default names.
func (a *app) folder() (string, error) {
	return config.DataDir(a.data, a.environ)
}

// operator returns a client of the operator API of the node that runs on the data folder.
func (a *app) operator() (operator, error) {
	dir, err := a.folder()
	if err != nil {
		return nil, err
	}
	return a.connect(dir), nil
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "Run and operate a node of an IPFS pinning cluster",
		Long: `Runs and operates a node of an IPFS pinning cluster. Every node runs this
program, and any node answers for the whole cluster. For a tour on this machine,
run: holdfast demo`,
		Example: `  holdfast run --data ~/node1       # creates a node and a cluster of one member
  holdfast run --data ~/node2 --join "$(holdfast token --data ~/node1)"
  holdfast status --data ~/node1`,
		Version:          a.version,
		SilenceErrors:    true,
		SilenceUsage:     true,
		Args:             subcommand,
		PersistentPreRun: func(*cobra.Command, []string) { a.started = true },
		RunE:             func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("holdfast {{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true // the commands are those of the contract
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) && negative(unknown.GetSpecifiedShortnames()) {
			return usagef("%s: -%s is a negative number (see %s --help)", called(cmd), unknown.GetSpecifiedShortnames(), cmd.CommandPath())
		}
		text, _, _ := strings.Cut(err.Error(), ": strconv.") // users do not need the name of the parser
		return usagef("%s: %s (see %s --help)", called(cmd), text, cmd.CommandPath())
	})
	root.PersistentFlags().StringVar(&a.data, "data", "", "data `folder` of the node (default $HOLDFAST_DATA, else $XDG_DATA_HOME/holdfast)")
	mustNotBeEmpty(root, "data")
	root.SetHelpCommand(helpCommand())
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) { // before cobra looks at the arguments
		if left := cmd.Flags().Args(); cmd.HasSubCommands() && len(left) > 0 {
			a.misused = subcommand(cmd, left)
			return
		}
		help(cmd, args)
	})
	root.AddCommand(
		a.runCommand(), a.demoCommand(), a.versionCommand(),
		a.statusCommand(), a.tokenCommand(), a.peersCommand(),
		a.userCommand(), a.keyCommand(), a.appCommand(), a.consoleCommand(), a.auditCommand(), a.paidCommand(),
		a.pinCommand(), a.addCommand(), a.getCommand(), a.carCommand(), a.scrubCommand(), a.gcCommand(), a.fsckCommand(), a.backupCommand(), a.restoreCommand(), a.recoverCommand(),
		a.putCommand(), a.listCommand(), a.removeCommand(), a.syncCommand(), a.keygenCommand(), a.rewrapCommand(), a.shareCommand(), a.profileCommand(),
		a.completionCommand(),
	)
	haveHelp(root)
	return root
}

// haveHelp adds the flag --help to cmd and its subcommands before cobra parses the command line.
// Otherwise cobra would add the flag too late, and would treat the argument after an unknown flag
// as the value of that flag.
func haveHelp(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	for _, below := range cmd.Commands() {
		haveHelp(below)
	}
}

// negative reports whether letters, which followed a single hyphen on the command line, are a
// number, so that the user meant a negative number and not flags.
func negative(letters string) bool {
	_, err := strconv.ParseFloat(letters, 64)
	return err == nil
}

// versionInfo is the output of version --json.
type versionInfo struct {
	Version string `json:"version"`
	Go      string `json:"go"` // version of the Go compiler
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  holdfast version --json",
		Args:    arguments(),
		RunE: func(*cobra.Command, []string) error {
			return a.did(asJSON, versionInfo{a.version, runtime.Version(), runtime.GOOS, runtime.GOARCH}, "holdfast %s", a.version)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// helpCommand replaces cobra's help command, which shows the help of the root for an
// unknown command.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		Example: "  holdfast help key create",
		ValidArgsFunction: func(cmd *cobra.Command, typed []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			if at, left, err := cmd.Root().Find(typed); err == nil && len(left) == 0 {
				for _, below := range at.Commands() {
					if below.IsAvailableCommand() {
						names = append(names, cobra.CompletionWithDesc(below.Name(), below.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			found, left, err := cmd.Root().Find(args)
			if err == nil && len(left) > 0 {
				err = subcommand(found, left)
			}
			if err != nil {
				return err
			}
			return found.Help()
		},
	}
}

// called returns the path of a command without the name of the program, such as "key create".
func called(cmd *cobra.Command) string {
	path := cmd.CommandPath()
	if _, below, ok := strings.Cut(path, " "); ok {
		return below
	}
	return path
}

// group returns a command that only has the subcommands below. Without a subcommand it returns a
// usageError that lists them.
func group(use, short, example string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:     use,
		Short:   short,
		Example: example,
		Args:    subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var names []string
			for _, sub := range cmd.Commands() {
				names = append(names, sub.Name())
			}
			return usagef("%s: add one of %s (see %s --help)", called(cmd), strings.Join(names, ", "), cmd.CommandPath())
		},
	}
	cmd.AddCommand(below...)
	return cmd
}

// subcommand returns a usageError if args is not empty, because cmd has no subcommand args[0].
// The error suggests subcommands with similar names.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf("see %s --help", cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = max(1, len(args[0])/3) // letters that may differ
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("%s: no command %q (%s)", called(cmd), args[0], hint)
}

// fileArgument is the name of arguments that are paths. A path can contain any bytes; all other
// arguments must be UTF-8.
const fileArgument = "FILE"

// listedBy describes arguments by their names, and says which command lists their values. A key
// such as "user link rm ID" applies only to that command, and takes precedence over the key ID.
var listedBy = map[string]string{
	"JTI":             "the id of a key, which holdfast key ls lists",
	"ID":              "the id of a pin, which holdfast pin ls lists",
	"user link rm ID": "the id of a link, which holdfast user link ls lists",
	"NODE":            "the id or the name of a member, which holdfast peers ls lists",
	"EMAIL":           "the e-mail of an account; holdfast user ls lists them",
	"EMAIL|ID":        "an account, of those that holdfast user ls lists",
}

// arguments returns a cobra check that requires exactly one argument for each of names. An
// argument must not be empty, and must be UTF-8 unless its name is fileArgument.
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			verb := "is"
			if len(names)-len(args) > 1 {
				verb = "are"
			}
			missing := names[len(args):]
			hint := "see " + cmd.CommandPath() + " --help"
			if list := cmp.Or(listedBy[called(cmd)+" "+missing[0]], listedBy[missing[0]]); list != "" {
				hint = list + "; " + hint
			}
			return usagef("%s: %s %s missing (%s)", called(cmd), strings.Join(missing, " and "), verb, hint)
		case len(args) > len(names):
			return usagef("%s: %q is one argument too many (see %s --help)", called(cmd), args[len(names)], cmd.CommandPath())
		case slices.Contains(args, ""):
			return usagef("%s: %s is empty (see %s --help)", called(cmd), names[slices.Index(args, "")], cmd.CommandPath())
		}
		for i, name := range names {
			if name != fileArgument && !utf8.ValidString(args[i]) {
				return usagef("%s: %s %q is not UTF-8", called(cmd), name, args[i])
			}
		}
		return nil
	}
}
