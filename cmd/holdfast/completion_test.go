package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command that prints an answer has --json, and no other command has it. The others run, write the bytes of a
// file, or print a script.
func TestEveryCommandThatPrintsHasJSON(t *testing.T) {
	without := []string{"run", "demo", "get", "car export", "completion", "help"}
	a, _ := testApp(t, &fakeNode{}, "")
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			walk(below)
		}
		if !cmd.HasSubCommands() && (cmd.Flags().Lookup("json") == nil) != slices.Contains(without, called(cmd)) {
			t.Errorf("%s: --json is there: %t", called(cmd), cmd.Flags().Lookup("json") != nil)
		}
	}
	walk(a.root())
}

// --json makes a command print one JSON document with the fields of its answer. These are the commands whose JSON no
// other test reads.
func TestJSONIsOneDocument(t *testing.T) {
	for args, want := range map[string]string{
		"version":                        `{"version":"v1.2.3"`,
		"token":                          `{"ticket":"ticket-24h0m0s"}`,
		"user add a@b":                   `"email":"a@b"`,
		"add -":                          `{"cid":"bafyadded","size":10,"requestid":"rbafyadded","status":"pinned"}`,
		"pin add bafyadded --wait":       `"requestid":"rbafyadded","status":"failed"`,
		"pin import":                     `{"imported":0,"known":0,"skipped":0,"failed":0,"known_failed":0}`,
		"user quota a@b 5GB":             `"allowance_bytes":`,
		"key create --user a@b":          `"id":"k1"`,
		"user passwd a@b":                `"email":"a@b"`,
		"user rm a@b":                    `"versions":30`,
		"user disable a@b":               `"email":"a@b"`,
		"user enable a@b":                `"email":"a@b"`,
		"pin rm r1":                      `"requestid":"r1"`,
		"peers rm beta":                  `"roots":1100`,
		"peers drain beta":               `"copies_then":2`,
		"user grant a@b 5 --posting one": `"credits":1100`,
		"user refund a@b 5":              `"credits":1100`,
		"user correct a@b g --credits 5": `"credits":1100`,
	} {
		node := manyThings()
		node.files = map[string]fakeFile{}
		stdin := "some bytes"
		if args == "pin import" {
			stdin = ""
		}
		got := call(t, node, stdin, append(strings.Fields(args), "--json")...)
		var compact strings.Builder
		var parsed any
		d := json.NewDecoder(strings.NewReader(got.out))
		if err := d.Decode(&parsed); err != nil || d.More() {
			t.Errorf("%s --json: %v in %+v", args, err, got)
			continue
		}
		for line := range strings.SplitSeq(got.out, "\n") {
			compact.WriteString(strings.Replace(strings.TrimSpace(line), `": `, `":`, 1))
		}
		if !strings.Contains(compact.String(), want) {
			t.Errorf("%s --json: %s, want %s", args, &compact, want)
		}
	}
}

// A shell that evaluates the output of `key create --env` has the token and an S3 endpoint that it can reach. It is
// wrong usage to give --env and --json together.
func TestAShellEvaluatesAKey(t *testing.T) {
	node := &fakeNode{}
	node.status.Node.S3 = "0.0.0.0:9000"
	got := call(t, node, "", "key", "create", "--user", "a@b", "--env")
	if got.code != exitOK {
		t.Fatalf("%+v", got)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", got.out+`echo "$HOLDFAST_TOKEN $AWS_ENDPOINT_URL"`).CombinedOutput()
	if err != nil || string(out) != "a.b.c http://127.0.0.1:9000\n" {
		t.Errorf("%v, %q of %q", err, out, got.out)
	}
	if got := call(t, node, "", "key", "create", "--user", "a@b", "--env", "--json"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
	for in, want := range map[string]string{
		"[::]:9000": "[::1]:9000", "192.0.2.1:9000": "192.0.2.1:9000", "localhost:9000": "localhost:9000", "": "",
	} {
		if got := reachable(in); got != want {
			t.Errorf("%q is reached at %q, want %q", in, got, want)
		}
	}
}

// Completions offer commands and flags with their descriptions, and the help names the value of a flag.
func TestCompletionsDescribeThemselves(t *testing.T) {
	for args, want := range map[string]string{
		"key create --":      "--name\tname by which people recognize the key\n",
		"key create --user":  "--user\temail of the account (required)\n",
		"status --d":         "--data\tdata folder of the node",
		"key r":              "revoke\tRevoke an API key",
		"run --replication=": ":",
		"help ":              "key\t",
		"help key r":         "revoke\tRevoke an API key",
		"help status ":       ":4",
	} {
		got := call(t, &fakeNode{}, "", append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if got.code != exitOK || !strings.Contains(got.out, want) || strings.Contains(got.out, "`") {
			t.Errorf("%s: %+v, want %q", args, got, want)
		}
	}
	if got := call(t, &fakeNode{}, "", "key", "create", "--help"); !strings.Contains(got.out, "--name name ") {
		t.Errorf("the help does not name the values: %s", got.out)
	}
}

// Bash completes commands, flags and values, and each installed shell parses its script without an error.
func TestShellsCompleteCommands(t *testing.T) {
	dir := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(dir, "holdfast")); err != nil {
		t.Fatal(err)
	}
	for _, s := range shells {
		got := call(t, &fakeNode{}, "", "completion", s.name)
		if got.code != exitOK || !strings.Contains(got.out, "holdfast") {
			t.Fatalf("%s: %+v", s.name, got)
		}
		if _, err := exec.LookPath(s.name); err != nil {
			continue
		}
		path := filepath.Join(dir, s.name)
		if err := os.WriteFile(path, []byte(got.out), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), s.name, "-n", path).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v, %s", s.name, err, out)
		}
	}
	if got := call(t, &fakeNode{}, "", "completion", "tcsh"); got.code != exitUsage || !strings.Contains(got.errOut, "bash, zsh, fish") {
		t.Errorf("%+v", got)
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash here")
	}
	for typed, want := range map[string]string{
		"pe": "peers", "peers r": "rm", "user ": "add correct disable enable grant ledger link ls passwd quota refund rm show", "key create --sc": "--scope", "completion z": "zsh",
		"nosuch x": "",
		// values of flags, of which bash splits some at = and :
		"pin ls --status p": "pinned pinning", "pin ls --status pinned,": "pinned,failed pinned,pinning pinned,queued",
		"pin ls --status = q": "queued", "pin ls --match ip": "ipartial", "pin import --format ip": "ipfs ipfs-cluster", "run --routing = ": "lan off public",
		"run --log-level d": "debug", "run --log-format ": "json text",
		"key create --scope storage : d": "delete", "key create --scope storage : read,storage : ": "delete write",
		"key create --scope = storage : r": "read",
	} {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", `source "$1"
COMP_WORDS=(holdfast) COMP_CWORD=0 COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
while IFS= read -rd " " word; do COMP_WORDS+=("$word"); ((++COMP_CWORD)); done <<<"$2 "
compopt() { :; } # it is for the shell that asked
_holdfast 2>&1
printf '%s\n' "${COMPREPLY[@]}" | sort | paste -sd " "`, "-", filepath.Join(dir, "bash"), typed)
		cmd.Env = append(os.Environ(), beProgram+"=1", "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%q completes to %q, %v; want %q", typed, out, err, want)
		}
	}
}
