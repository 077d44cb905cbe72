package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// bashCompletion is the completion script for bash. The script asks the program for the
// completions. It replaces the script that cobra generates, because that one needs the package
// bash-completion, which many servers do not have.
const bashCompletion = `# bash completion of holdfast
_holdfast() {
	local out directive line word cur last= before words=()
	for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do # bash splits --status=x and storage:read
		if [[ ${#words[@]} -gt 0 && ( $last == [:=] || $word == [:=] ) ]]; then
			words[${#words[@]}-1]+=$word
		else
			words+=("$word")
		fi
		last=$word
	done
	out=$("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null) || return
	directive=${out##*:}
	cur=${words[${#words[@]}-1]}
	[[ $cur == -*=* ]] && cur=${cur#*=} # the program completes the value alone
	before= # bash replaces only what follows the last colon
	[[ $COMP_WORDBREAKS == *:* && $cur == *:* ]] && before=${cur%:*}:
	COMPREPLY=()
	while IFS= read -r line; do
		line=${line%%$'\t'*}
		[[ $line == :+([0-9]) || $line != "$cur"* ]] || COMPREPLY+=("${line#"$before"}")
	done <<<"$out"
	((directive & 2)) && compopt -o nospace
	((directive & 4)) || [[ ${#COMPREPLY[@]} -gt 0 ]] || compopt -o default
}
complete -F _holdfast holdfast
`

// shells lists the supported shells, each with the function that writes its completion script.
var shells = []struct {
	name  string
	write func(root *cobra.Command, w io.Writer) error
}{
	{"bash", func(_ *cobra.Command, w io.Writer) error { _, err := io.WriteString(w, bashCompletion); return err }},
	{"zsh", func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) }},
	{"fish", func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }},
}

// withoutQuotes removes the back quotes from the usage texts of all flags of cmd and its
// subcommands. pflag needs the back quotes to name the value of a flag in help texts, but in
// completions a shell would show them.
func withoutQuotes(cmd *cobra.Command) {
	plain := func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) }
	cmd.Flags().VisitAll(plain)
	cmd.PersistentFlags().VisitAll(plain)
	for _, below := range cmd.Commands() {
		withoutQuotes(below)
	}
}

// completeValues makes shells offer words as the values of a flag.
func completeValues(cmd *cobra.Command, flag string, words ...string) {
	mustComplete(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// completeLists makes shells offer words for the last entry of a comma-separated flag value,
// except for those that the value already contains.
func completeLists(cmd *cobra.Command, flag string, words ...string) {
	mustComplete(cmd, flag, func(_ *cobra.Command, _ []string, typed string) (lists []string, _ cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		there := strings.Split(before, ",")
		for _, word := range words {
			if !slices.Contains(there, word) {
				lists = append(lists, before+word)
			}
		}
		return lists, cobra.ShellCompDirectiveNoFileComp
	})
}

// mustComplete registers the completion of a flag's value. It panics if cmd does not have the
// flag.
func mustComplete(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err)
	}
}

func (a *app) completionCommand() *cobra.Command {
	var names []string
	for _, s := range shells {
		names = append(names, s.name)
	}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a completion script for a shell",
		Long: `Prints a script with which bash, zsh or fish completes the commands, the flags
and the values of flags of holdfast.`,
		Example: `  source <(holdfast completion bash)
  holdfast completion zsh > "${fpath[1]}/_holdfast"
  holdfast completion fish > ~/.config/fish/completions/holdfast.fish`,
		Args:              arguments("SHELL"),
		ValidArgsFunction: cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, s := range shells {
				if s.name == args[0] {
					if err := s.write(cmd.Root(), a.stdout); err != nil {
						return fmt.Errorf("write output: %w", err)
					}
					return nil
				}
			}
			return usagef("%s: no completion for %q, only for %s", called(cmd), args[0], strings.Join(names, ", "))
		},
	}
}
