//go:build conformance

package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// completions are words that are typed behind holdfast, and what they may go on with. They show that a
// shell loads its script; TestEveryCommandExplainsItself completes all commands and flags.
var completions = map[string][]string{
	"pe":                    {"peers"},
	"peers r":               {"rm"},
	"user ":                 {"add", "correct", "disable", "enable", "grant", "ledger", "link", "ls", "passwd", "quota", "refund", "rm", "show"},
	"key create --sc":       {"--scope"},
	"audit ls --action app": {"app", "app.create", "app.remove"},
	"completion ":           {"bash", "fish", "zsh"},
	"add som":               {"some file"},
	"add --hash sh":         {"sha2-256"},
	"put som":               {"some file"},
	"car ":                  {"export", "import"},
	"car import som":        {"some file"},
	"syn":                   {"sync"},
	"sync --chec":           {"--checksum"},
	"sha":                   {"share"},
	"share create --exp":    {"--expires"},
	"share create --who":    {"--whole-bucket"},
	"share ls --a":          {"--all"},
	"paid ":                 {"ls"},
	"nosuch command --flag": nil,
	"pin ls --status fa":    {"failed"},
	"run --routing l":       {"lan"},
}

// helped is a command as its help describes it.
type helped struct {
	words string // behind holdfast; "" is the program itself
	text  string
	below []string
	flags []string // long ones
}

// In the help, a command below has a line of its own in the list of commands, and each flag in the lists
// of flags.
var (
	helpedBelow = regexp.MustCompile(`(?m)^  ([a-z]+) {2,}\S`)
	helpedFlag  = regexp.MustCompile(`(?m)^  (?:-\w, |    )(--[a-z][a-z0-9-]*)`)
)

// everyCommand reads the help of the program and of all commands.
func everyCommand(t *testing.T) (all []helped) {
	t.Helper()
	for left := []string{""}; len(left) > 0; left = left[1:] {
		r := harness.Run(t, nil, "", append(strings.Fields(left[0]), "--help")...)
		h := helped{words: left[0], text: r.Stdout}
		_, text, _ := strings.Cut(r.Stdout, "\nUsage:\n")
		if r.Code != 0 || text == "" {
			t.Fatalf("%s --help: exit code %d, %s%s", h.words, r.Code, r.Stdout, r.Stderr)
		}
		if _, list, has := strings.Cut(text, "\nAvailable Commands:\n"); has {
			list, text, _ = strings.Cut(list, "\n\n")
			for _, m := range helpedBelow.FindAllStringSubmatch(list, -1) {
				h.below = append(h.below, m[1])
				left = append(left, strings.TrimSpace(h.words+" "+m[1]))
			}
		}
		_, text, _ = strings.Cut("\n"+text, "\nFlags:\n")
		for _, m := range helpedFlag.FindAllStringSubmatch(text, -1) {
			h.flags = append(h.flags, m[1])
		}
		all = append(all, h)
	}
	return all
}

// completesAll asks as the scripts of all shells do: after a command, all commands below it and all its
// flags are offered.
func completesAll(t *testing.T, h *helped) {
	t.Helper()
	asked := map[string][]string{"--": h.flags}
	if len(h.below) > 0 {
		asked[""] = h.below
	}
	for typed, want := range asked {
		out := harness.Run(t, nil, "", append(append([]string{"__complete"}, strings.Fields(h.words)...), typed)...).Stdout
		var got []string
		for line := range strings.Lines(out) {
			if word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); !strings.HasPrefix(word, ":") {
				got = append(got, word)
			}
		}
		slices.Sort(got)
		if want := slices.Sorted(slices.Values(want)); len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%q is completed to %q, and the help lists %q", h.words+" "+typed, got, want)
		}
	}
}

// TestCompletionIsLoadedByZsh promises that an interactive zsh loads the completion script as compinit does, and
// completes with it when the tab key is pressed. It loads the script from its folder of functions. What compadd would
// show is written to a file.
func TestCompletionIsLoadedByZsh(t *testing.T) {
	longForm(t)
	if _, err := exec.LookPath("zsh"); err != nil {
		t.Skip("zsh is not installed")
	}
	const setup = `PS1=
fpath=($FUNCTIONS $fpath)
autoload -Uz compinit
compinit -u -D
compadd() {
	local -a matches
	case " ${@[1,(i)(-|--)]} " in
	*' -'[OAD]' '*) builtin compadd "$@"; return ;;
	esac
	builtin compadd -O matches "$@"
	print -rl -- $matches >>$SHOWN
	(( $#matches ))
}
captured() { print -r -- END >>$SHOWN; BUFFER= }
zle -N captured
bindkey '^I' complete-word '^X' captured
`
	const script = `zmodload zsh/zpty zsh/zselect || exit
zpty shell zsh -f -i
zpty -w shell "source $1"
zpty -w -n shell "holdfast $2"$'\t\x18'
for ((i = 0; i < 1000; i++)); do
	[[ -s $SHOWN && $(<$SHOWN) == *END ]] && break
	zpty -r -t shell >/dev/null || zselect -t 2
done
zpty -d shell
`
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("_holdfast", harness.Run(t, nil, "", "completion", "zsh").Stdout)
	source := write("setup", setup)
	completes(t, func(typed string) []string {
		shown := filepath.Join(t.TempDir(), "shown")
		run(t, []string{"FUNCTIONS=" + dir, "SHOWN=" + shown}, "zsh", "-f", "-c", script, "-", source, typed)
		lines := strings.Split(strings.TrimSpace(string(read(t, shown))), "\n")
		return slices.DeleteFunc(lines, func(line string) bool { return line == "END" || line == "" })
	})
}

// TestCompletionIsLoadedByFish promises that fish loads the completion script from its folder and completes with it.
func TestCompletionIsLoadedByFish(t *testing.T) {
	if _, err := exec.LookPath("fish"); err != nil {
		t.Skip("fish is not installed")
	}
	config := t.TempDir()
	folder := filepath.Join(config, "fish", "completions") // as the help says
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	overwrite(t, filepath.Join(folder, "holdfast.fish"), []byte(harness.Run(t, nil, "", "completion", "fish").Stdout))
	completes(t, func(typed string) (words []string) {
		out := run(t, []string{"XDG_CONFIG_HOME=" + config}, "fish", "-c", "complete -C $argv[1]", "holdfast "+typed)
		for line := range strings.Lines(out) {
			word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			words = append(words, word)
		}
		return words
	})
}

// completes compares what a shell shows with what it should.
func completes(t *testing.T, shows func(typed string) []string) {
	t.Helper()
	for typed, want := range completions {
		got := shows(typed)
		for i, word := range got { // quoted for the line or not
			got[i] = strings.ReplaceAll(word, `\`, "")
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%q is completed to %q, want %q", typed, got, want)
		}
	}
}

// run runs a shell in a folder with one file, and the program first in its PATH.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = t.TempDir()
	overwrite(t, filepath.Join(cmd.Dir, "some file"), nil)
	cmd.Env = append([]string{
		"PATH=" + filepath.Dir(harness.Binary(t)) + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TERM=xterm",
	}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}
