package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A call with wrong usage exits with code 2 and prints one line on standard error that names what is wrong.
func TestWrongUsageIsCodeTwoAndNamed(t *testing.T) {
	for _, tc := range []struct {
		args  string
		names string
	}{
		{"fly", `"fly"`},
		{"statu", "status"},
		{"peers", "ls, rm"},
		{"peers fly", `"fly"`},
		{"status --fast", "--fast"},
		{"status extra", `"extra"`},
		{"status --json=perhaps", "--json"},
		{"pin get", "ID is missing (the id of a pin, which holdfast pin ls lists"},
		{"user link rm", "ID is missing (the id of a link, which holdfast user link ls lists"},
		{"pin get a b", `"b"`},
		{"pin ls --status lost", "lost"},
		{"pin ls --limit many", "--limit"},
		{"pin ls --limit -1", "--limit"},
		{"user add", "EMAIL"},
		{"user rm", "EMAIL"},
		{"user passwd", "EMAIL"},
		{"user disable", "EMAIL"},
		{"user enable", "EMAIL"},
		{"user quota a@b", "BYTES"},
		{"user quota a@b 1.5", `"1.5"`},
		{"user quota a@b -1", "-1"},
		{"user grant a@b", "CREDITS"},
		{"user grant a@b 0", `"0"`},
		{"user grant a@b -5", "-5 is a negative number"},
		{"user quota a@b -1.5", "-1.5 is a negative number"},
		{"user grant -x", "unknown shorthand"},
		{"user refund a@b 0", `"0"`},
		{"user correct a@b g", "--credits is missing"},
		{"user ledger a@b --json --csv", "do not go together"},
		{"user grant", "EMAIL and CREDITS are missing"},
		{"user quota a@b", "BYTES is missing"},
		{"token --ttl 30", "90m, 24h or 30d"},
		{"token --ttl 3w", "90m, 24h or 30d"},
		{"token --ttl d", "90m, 24h or 30d"},
		{"token --ttl 1d-1h", "90m, 24h or 30d"},
		{"token --ttl 106752d", "90m, 24h or 30d"},
		{"key create", "--user"},
		{"key create --user a@b --ttl soon", "--ttl"},
		{"key create --user a@b --ttl -1h", "--ttl"},
		{"key revoke", "JTI"},
		{"token --ttl 0s", "--ttl"},
		{"peers rm", "NODE"},
		{"peers drain", "NODE"},
		{"peers drain beta --wait --cancel", "not both"},
		{"add", "PATH"},
		{"put x", "s3://BUCKET/KEY"},
		{"put x y", "s3://"},
		{"put - s3://b/", "names no key"},
		{"put x s3://b/k", "no cluster is named"},
		{"put x s3://b/k --endpoint http://h", "HOLDFAST_TOKEN"},
		{"put x s3://b/k --endpoint ftp://h --token t", "ftp://h"},
		{"put x s3://b/k --identity i", "--encrypt"},
		{"put x s3://b/k --profile none", `"none"`},
		{"put x s3:///k", "no bucket"},
		{"get s3://b", "the key is missing"},
		{"get s3://b/k f -o g", "--output"},
		{"get s3://b/k --blake3 00", "--blake3"},
		{"get s3://b/k --user a@b", "--user"},
		{"get bafy --verify", "--verify"},
		{"get bafy file", `"file"`},
		{"get s3://b/a/..", "give FILE"},
		{"ls b", "s3://"},
		{"rm s3://b/p/", "the key is missing"},
		{"sync a b", "in either order"},
		{"sync s3://a s3://b", "in either order"},
		{"sync a s3://b --parallel 0", "--parallel"},
		{"sync s3://b a --follow", "--follow"},
		{"keygen", "FILE"},
		{"rewrap s3://b", "--to"},
		{"rewrap b --to x", "s3://"},
		{"profile", "add, ls"},
		{"profile add x", "--endpoint"},
		{"get", "CID"},
		{"get a -o", "-o"},
		{"demo --data x", "--data"},
		{"demo x", `"x"`},
		{"fly --help", `"fly"`},
		{"--help fly", `"fly"`},
		{"--help key fly", `"fly"`},
		{"backups -h", `"backups"`},
		{"peers fly --help", `"fly"`},
		{"help fly", `"fly"`},
		{"help key fly", `"fly"`},
		{"run x", `"x"`},
		{"run --replication many", "--replication"},
		{"run --replication 0", "--replication"},
		{"run --routing psychic", "--routing"},
		{"run --pinning-listen nowhere", "--pinning-listen"},
		{"run --listen 127.0.0.1:4001", "--listen"},
	} {
		isWrongUsage(t, tc.args, tc.names)
	}
}

// isWrongUsage promises code 2 and one line that names what is wrong.
func isWrongUsage(t *testing.T, args, names string) {
	t.Helper()
	got := call(t, &fakeNode{}, "", strings.Fields(args)...)
	if got.code != exitUsage || !strings.Contains(got.errOut, names) || strings.Count(got.errOut, "\n") != 1 || got.out != "" {
		t.Errorf("%s: %+v, want code %d and one line with %s", args, got, exitUsage, names)
	}
}

// `holdfast run` with a wrong address exits with code 2, names the flag and the address, and writes nothing.
func TestAWrongAddressIsNamedBeforeAnythingIsWritten(t *testing.T) {
	for _, tc := range [][2]string{
		{"--listen", "/ip4/999.0.0.1/tcp/1"},
		{"--listen", "/dns4/example.org/tcp/1"},
		{"--listen", "/ip4/127.0.0.1"},
		{"--cluster-listen", "/ip4/127.0.0.1/tcp/70000"},
		{"--announce", "/foo/bar"},
		{"--bootstrap", "/ip4/1.2.3.4/tcp/1"},
		{"--bootstrap", "/ip4/1.2.3.4/tcp/1/p2p/nobody"},
		{"--join", "/ip4/1.2.3.4/tcp/1"},
	} {
		dir := filepath.Join(t.TempDir(), "node")
		got := call(t, &fakeNode{}, "", "run", "--data", dir, tc[0], tc[1])
		if got.code != exitUsage || !strings.Contains(got.errOut, tc[0]+": ") || !strings.Contains(got.errOut, tc[1]) {
			t.Errorf("%q: %+v", tc, got)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: something was written: %v", tc, err)
		}
	}
}

// A value of --join by which nobody can join is wrong usage, and one line names the fault. The node is no member yet.
func TestAPlaceNobodyCanJoinAtIsWrongUsage(t *testing.T) {
	for _, tc := range []struct{ where, names string }{
		{"garbage", "ticket"},
		{"holdfast1.e30", "not whole"},
		{"/ip4/127.0.0.1/tcp/1/p2p/12D3KooWNrbHpKYDmTUXFRQBnnvJ7aMLUCGNCAio2P3AW2N3LNB9", "--secret-file"},
	} {
		got := call(t, &fakeNode{}, "", "run", "--data", t.TempDir(), "--join", tc.where, "--routing", "off", "--log-level", "error",
			"--listen", "/ip4/127.0.0.1/tcp/0", "--cluster-listen", "/ip4/127.0.0.1/tcp/0",
			"--pinning-listen", "127.0.0.1:0", "--s3-listen", "127.0.0.1:0", "--console-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
		if got.code != exitUsage || !strings.Contains(got.errOut, tc.names) || strings.Count(got.errOut, "\n") != 1 {
			t.Errorf("--join %s: %+v, want code %d and one line with %q", tc.where, got, exitUsage, tc.names)
		}
	}
}

// A bad cluster secret stops the start of a node that is no member yet, even if the node does not need it. The error
// has one line that names the flag or variable.
func TestABadSecretStopsTheStart(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("zz\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const address = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWNrbHpKYDmTUXFRQBnnvJ7aMLUCGNCAio2P3AW2N3LNB9"
	const ticket = "holdfast1.e30"
	for _, tc := range []struct {
		env   string
		args  []string
		names []string
		code  int
	}{
		{"HOLDFAST_SECRET=zz", nil, []string{"HOLDFAST_SECRET"}, exitFailure},
		{"HOLDFAST_SECRET=zz", []string{"--join", address}, []string{"HOLDFAST_SECRET"}, exitFailure},
		{"", []string{"--secret-file", bad}, []string{"--secret-file", bad, "hexadecimal"}, exitUsage},
		{"", []string{"--secret-file", bad, "--join", address}, []string{"--secret-file", bad, "hexadecimal"}, exitUsage},
		{"", []string{"--secret-file", "/nonexistent", "--join", ticket}, []string{"--secret-file", "/nonexistent"}, exitUsage},
		{"", []string{"--secret-file", "/nonexistent"}, []string{"--secret-file", "/nonexistent"}, exitUsage},
	} {
		a, w := testApp(t, &fakeNode{}, "")
		if tc.env != "" {
			a.environ = append(a.environ, tc.env)
		}
		code := a.execute(t.Context(), append([]string{
			"run", "--routing", "off", "--log-level", "error", "--listen", "/ip4/127.0.0.1/tcp/0", "--cluster-listen", "/ip4/127.0.0.1/tcp/0",
			"--pinning-listen", "127.0.0.1:0", "--s3-listen", "127.0.0.1:0", "--console-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		}, tc.args...))
		text := w.errs.String()
		for _, name := range tc.names {
			if !strings.Contains(text, name) {
				t.Errorf("%s %v: %q does not name %s", tc.env, tc.args, text, name)
			}
		}
		if code != tc.code || strings.Count(text, "\n") != 1 {
			t.Errorf("%s %v: code %d, %q", tc.env, tc.args, code, text)
		}
	}
}

// `holdfast run --paid-listen` without paid.pay_to and paid.facilitator fails with an error that names both.
func TestThePaidGatewayDoesNotStartWithoutAnAddressToPay(t *testing.T) {
	got := call(t, &fakeNode{}, "", "run", "--data", t.TempDir(), "--paid-listen", "127.0.0.1:0")
	if got.code == 0 || !strings.Contains(got.errOut, "paid.pay_to") || !strings.Contains(got.errOut, "paid.facilitator") {
		t.Errorf("code %d, %s", got.code, got.errOut)
	}
}

// An empty value of a flag, and a value that is not UTF-8, is wrong usage, and the command changes nothing. A
// variable of a shell that was never set becomes an empty value, which is no default either; and bytes that are no
// text would not arrive as they are.
func TestValuesThatAreEmptyOrNoTextAreWrongUsage(t *testing.T) {
	for _, args := range [][]string{
		{"key", "create", "--user", "a@b", "--scope", ""},
		{"key", "create", "--user", "a@b", "--scope", "storage:read,"},
		{"key", "create", "--user", "a@b", "--scope", " "},
		{"key", "create", "--user", "a@b", "--name", "\xff\xfe"},
		{"key", "create", "--user", ""},
		{"key", "ls", "--user", ""},
		{"pin", "ls", "--status", ""},
		{"pin", "ls", "--user", ""},
		{"pin", "ls", "--name", ""},
		{"pin", "ls", "--match", ""},
		{"pin", "ls", "--cid", ""},
		{"pin", "ls", "--meta", "a=\xff"},
		{"pin", "add", "bafyhave", "--name", "\xff\xfe"},
		{"pin", "add", "bafyhave", "--origin", ""},
		{"pin", "add", "bafy\xff"},
		{"pin", "import", "--from", "http://127.0.0.1:1", "--token", "t", "--status", ""},
		{"pin", "import", "--from", ""},
		{"user", "add", "a\xff@b"},
		{"user", "grant", "a@b", "1", "--posting", ""},
		{"get", "bafyhave", "-o", ""},
		{"status", "--data", ""},
	} {
		node := &fakeNode{files: map[string]fakeFile{"bafyhave": {data: "x"}}}
		got := call(t, node, "", args...)
		if got.code != exitUsage || strings.Count(got.errOut, "\n") != 1 || got.out != "" || len(node.keys)+len(node.pins) > 0 {
			t.Errorf("%q: %+v, keys %v, pins %v", args, got, node.keys, node.pins)
		}
	}
}

// `user passwd` stores the first line of its input unchanged, or refuses it. It refuses one that is empty, longer
// than 1,024 bytes or not UTF-8.
func TestPasswordsAreTakenAsTheyAreOrRefused(t *testing.T) {
	long := strings.Repeat("x", 1024)
	for _, tc := range []struct {
		stdin string
		want  string // what is set; empty: refused
	}{
		{long, long},
		{long + "\n", long},
		{long + "\r\nmore", long},
		{long + "x\n", ""},
		{long + "x", ""},
		{"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8\n", ""},
		{"pässwörter\n", "pässwörter"},
		{"\n", ""},
	} {
		node := &fakeNode{}
		got := call(t, node, tc.stdin, "user", "passwd", "a@b")
		if tc.want == "" && (got.code != exitFailure || len(node.changes) > 0) ||
			tc.want != "" && (got.code != exitOK || !slices.Equal(node.changes, []string{"passwd a@b " + tc.want})) {
			t.Errorf("%d bytes: %+v, %q", len(tc.stdin), got, node.changes)
		}
	}
}

// fullDisk is standard output that takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// A command whose standard output cannot be written exits with code 1 and says why. A script that redirects a command
// must not take an empty file for an answer.
func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	for _, args := range []string{
		"version", "--version", "--help", "key create --help", "help key", "token", "user add a@b", "user ls", "user ls --json",
		"key create --user a@b", "key create --user a@b --json", "pin ls", "pin add bafyhave", "pin get r1", "peers ls", "status",
		"status --json", "add app_test.go", "get bafyhave",
	} {
		node := &fakeNode{files: map[string]fakeFile{"bafyhave": {data: "x"}, "bafyadded": {data: "x"}}, pins: []client.PinStatus{{RequestID: "r1"}}}
		a, w := testApp(t, node, "")
		a.stdout = fullDisk{}
		if code := a.execute(t.Context(), strings.Fields(args)); code != exitFailure || !strings.Contains(w.errs.String(), "no space left") {
			t.Errorf("%s: code %d, %q", args, code, w.errs.String())
		}
	}
}

// refusing is a node that answers everything with one error.
type refusing struct {
	operator

	err error
}

func (r refusing) CreateUser(context.Context, string, string) (client.User, error) {
	return client.User{}, r.err
}
func (r refusing) SetPassword(context.Context, string, string) error { return r.err }
func (r refusing) CreateKey(context.Context, client.NewKey) (client.Key, error) {
	return client.Key{}, r.err
}

func (r refusing) AddPin(context.Context, string, client.Pin) (client.PinStatus, error) {
	return client.PinStatus{}, r.err
}

func (r refusing) OpenContent(context.Context, string, string) (io.ReadCloser, int64, error) {
	return nil, 0, r.err
}

func (r refusing) OpenFileOrFolder(context.Context, string, string) (client.Opened, error) {
	return client.Opened{}, r.err
}
func (r refusing) CreateTicket(context.Context, time.Duration) (string, error) { return "", r.err }

// An answer of 400 is wrong usage, and one of 404, 409 or 503 is a failure, with the node's reason. A password that
// is too short is a failure, not wrong usage: the command refuses it before the node sees it.
func TestWhatTheNodeFindsWrongInTheWordsIsWrongUsage(t *testing.T) {
	for _, args := range []string{
		"key create --user a@b --scope bogus", "user add notanemail", "pin add notacid", "get notacid", "car export notacid", "token --ttl 1s",
	} {
		for status, code := range map[int]int{400: exitUsage, 404: exitFailure, 409: exitFailure, 503: exitFailure} {
			node := refusing{err: fmt.Errorf("more: %w", &client.Error{Status: status, Detail: "the word is wrong"})}
			if got := call(t, node, "", strings.Fields(args)...); got.code != code || got.errOut != "holdfast: more: the word is wrong\n" {
				t.Errorf("%s, answered %d: %+v", args, status, got)
			}
		}
	}
	// A password is no word of the call: it is looked at before the node sees it.
	for _, args := range []string{"user add a@b --password-stdin", "user passwd a@b"} {
		node := refusing{err: &client.Error{Status: 400}}
		if got := call(t, node, "short\n", strings.Fields(args)...); got.code != exitFailure || !strings.Contains(got.errOut, "shorter than 8") {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// A list in a flag is read with commas, with spaces, and with both. So the scopes of a key are taken as they are
// printed.
func TestListsAreTakenAsTheyArePrinted(t *testing.T) {
	for _, scope := range []string{"storage:read storage:write", "storage:read, storage:write", "storage:read,storage:write"} {
		node := &fakeNode{}
		got := call(t, node, "", "key", "create", "--user", "a@b", "--scope", scope)
		if got.code != exitOK || len(node.keys) != 1 || !slices.Equal(node.keys[0].Scopes, []string{"storage:read", "storage:write"}) {
			t.Errorf("%q: %+v, %+v", scope, got, node.keys)
		}
	}
	if got := call(t, &fakeNode{}, "", "pin", "ls", "--status", "queued, failed", "--json"); got.code != exitOK {
		t.Errorf("states: %+v", got)
	}
}

// A failure that is no wrong usage exits with code 1 and prints one line on standard error, without the usage.
func TestFailureIsCodeOneAndOneLine(t *testing.T) {
	node := &fakeNode{files: map[string]fakeFile{}}
	for _, args := range []string{
		"pin get unknown",
		"get unknown",
		"add /no/such/file",
		"add /dev/null " + os.DevNull + "/x",
		"user add a@b --password-stdin",
	} {
		got := call(t, node, "", strings.Fields(args)...)
		if got.code != exitFailure || strings.Count(got.errOut, "\n") != 1 || got.out != "" || strings.Contains(got.errOut, "Usage") {
			t.Errorf("%s: %+v, want code %d and one line", args, got, exitFailure)
		}
	}
}

// `pin add --wait` prints the id of the pin and exits with code 1 and the reason if the pin fails.
func TestAPinThatFailsHasItsID(t *testing.T) {
	node := &fakeNode{files: map[string]fakeFile{}}
	want := outcome{exitFailure, "rbafynobody\n", "holdfast: pin rbafynobody failed: nobody has it\n"}
	if got := call(t, node, "", "pin", "add", "bafynobody", "--wait"); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A bad variable of the environment exits with code 1 and is named.
func TestSettingsThatAreNoFlagsAreNoWrongUsage(t *testing.T) {
	var out, errs strings.Builder
	a := &app{environ: []string{"HOLDFAST_DATA=" + t.TempDir(), "HOLDFAST_REPAIR_AFTER=soon"}, stdout: &out, stderr: &errs}
	if code := a.execute(t.Context(), []string{"run"}); code != exitFailure || !strings.Contains(errs.String(), "HOLDFAST_REPAIR_AFTER") {
		t.Errorf("code %d, %q", code, errs.String())
	}
}

// helpWidth is the most columns of a line of a help text, so that it fits a terminal.
const helpWidth = 80

// `--help` of each command explains the command in lines that fit a terminal, and names the value of each flag. It
// exits with code 0. Each command has an example.
func TestEveryCommandExplainsItself(t *testing.T) {
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		got := call(t, &fakeNode{}, "", append(path, "--help")...)
		if got.code != exitOK || got.errOut != "" || !strings.Contains(got.out, "Usage:") {
			t.Errorf("%v --help: %+v", path, got)
		}
		if before := call(t, &fakeNode{}, "", append([]string{"--help"}, path...)...); before != got {
			t.Errorf("--help %v: %+v, the other way round %+v", path, before, got)
		}
		if cmd.Short == "" || !strings.Contains(cmd.Example, "holdfast "+strings.Join(path, " ")) {
			t.Errorf("%v: short %q, example %q", path, cmd.Short, cmd.Example)
		}
		for line := range strings.Lines(cmd.Long) {
			if len(strings.TrimSpace(line)) > helpWidth {
				t.Errorf("%v: a line of the help is wider than %d columns: %q", path, helpWidth, line)
			}
		}
		if strings.Contains(got.out, "(default [])") {
			t.Errorf("%v shows an empty list as a default", path)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); name == "string" || name == "strings" || name == "stringArray" || name == "int" {
				t.Errorf("%v --%s shows %q for its value, not a word of the operator", path, f.Name, name)
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub, append(path[:len(path):len(path)], sub.Name()))
		}
	}
	walk((&app{}).root(), nil)
}

// A flag that takes a time span shows it in whole units, with days as hours.
func TestSpansAreShownInWholeUnits(t *testing.T) {
	for given, want := range map[string]string{
		"24h": "24h", "1d": "24h", "90m": "1h30m", "1h30m": "1h30m", "45s": "45s", "1h0m5s": "1h0m5s", "10m": "10m", "500ms": "500ms", "0s": "0",
	} {
		var f spanFlag
		if err := f.Set(given); err != nil || f.String() != want {
			t.Errorf("%s is shown as %s, %v, want %s", given, f.String(), err, want)
		}
	}
}

// A command that succeeds prints its answer on standard output exactly as scripts read it, and nothing else. It asks
// the node for the change that was typed.
func TestOutputIsWhatScriptsRead(t *testing.T) {
	node := &fakeNode{
		files: map[string]fakeFile{"bafyhave": {data: "x"}},
		pins: []client.PinStatus{
			{RequestID: "r2", Status: "failed", Created: "2026-11-20T10:00:01.000Z", Pin: client.Pin{CID: "bafy2"}},
			{RequestID: "r1", Status: "pinned", Created: "2026-11-20T10:00:00.000Z", Pin: client.Pin{CID: "bafy1", Name: "a\x1b[31mb"}},
		},
		status: client.Status{Leader: "12D3", Peers: []client.Peer{{ID: "12D3", Name: "beta", Role: "voter"}}},
	}
	for _, tc := range []struct{ args, stdin, want string }{
		{"version", "", "holdfast v1.2.3\n"},
		{"--version", "", "holdfast v1.2.3\n"},
		{"token", "", "ticket-24h0m0s\n"},
		{"token --ttl 90m", "", "ticket-1h30m0s\n"},
		{"token --ttl 30d", "", "ticket-720h0m0s\n"},
		{"token --ttl 1d12h", "", "ticket-36h0m0s\n"},
		{"user add a@b", "", "a@b\n"},
		{"user add a@b --password-stdin", "secret words\r\nmore\n", "a@bsecret words\n"},
		{"user ls --json", "", "[]\n"},
		{"user rm a@b", "", "removed account a@b: 1,100 pins, 1 bucket with 12 objects and 30 old versions, 2 keys, 5.0 MiB stored\n"},
		{"user disable a@b", "", "disabled a@b: every node refuses its 2 API keys and 0 sessions\n"},
		{"user enable a@b", "", "enabled a@b, with 2 API keys\n"},
		{"user passwd a@b", "secret words\n", "changed the password of a@b; its sessions have ended\n"},
		{"user quota a@b 7", "", "allowance of a@b: 7.0 GiB (7516192768 bytes); 5.0 MiB are stored\n"},
		{"user quota a@b unlimited", "", "allowance of a@b: 7.0 GiB (7516192768 bytes); 5.0 MiB are stored\n"},
		{"user grant a@b 7 --posting g", "", "credits of a@b: 1,100\n"},
		{"user refund a@b 7 --posting r --note why", "", "credits of a@b: 1,100\n"},
		{"user correct a@b g --credits -7", "", "credits of a@b: 1,100\n"},
		{"pin ls", "", "REQUEST ID  STATUS  CREATED                   CID    NAME\n" +
			"r2          failed  2026-11-20T10:00:01.000Z  bafy2\n" +
			"r1          pinned  2026-11-20T10:00:00.000Z  bafy1  a?[31mb\n"},
		{"pin ls --status queued --json", "", "[]\n"},
		{"pin get r2", "", "id        r2\ncid       bafy2\nstatus    failed\ncreated   2026-11-20T10:00:01.000Z\n"},
		{"pin add bafyhave --wait", "", "rbafyhave\n"},
		{"peers drain beta", "", "draining member beta (12D3): 1,100 roots move to the other members; holdfast peers drain 12D3 --wait waits for the end\n"},
		{"peers drain beta --wait", "", "drained member beta (12D3): it holds nothing any more; holdfast peers rm 12D3 removes it\n"},
		{"peers drain 12D3 --cancel", "", "member beta (12D3) is given content again\n"},
		{"peers rm beta", "", "removed member beta (12D3); 2 votes left\n"},
		{"peers rm 12D3 --force --yes", "", "removed member beta (12D3); 2 votes left\n"},
		{"key revoke k1", "", "revoked key k1 \"lap?top\" of a@b\n"},
		{"key revoke k0 --json", "", "{\n  \"id\": \"k0\",\n  \"user\": \"\",\n  \"name\": \"\",\n  \"scope\": \"\",\n  \"created\": \"\"\n}\n"},
		{"pin rm r1", "", "removed pin r1 \"a?[31mb\" of bafy1\n"},
		{"user show id-of-a", "", "email      id-of-a\nid         id-of-a\ncreated    \nallowance  7.0 GiB (7516192768 bytes)\nstored     5.0 MiB\n" +
			"coming     0 B\ncredits    1,100\npins       0 queued, 0 pinning, 1099 pinned, 1 failed\nbuckets    1\nobjects    12\nversions   30\nuploads    0\nkeys       2\nsessions   0\n"},
	} {
		got := call(t, node, tc.stdin, strings.Fields(tc.args)...)
		if got.code != exitOK || got.out != tc.want || got.errOut != "" {
			t.Errorf("%s:\n got %+v\nwant %q", tc.args, got, tc.want)
		}
	}
	want := []string{
		"rm a@b", "disable a@b true", "disable a@b false", "passwd a@b secret words", "quota a@b 7", "quota a@b 18446744073709551615", "grant a@b g 7", "refund a@b r 7 why", "correction a@b -7 g",
		"drain 12D3 true", "drain 12D3 true", "drain 12D3 false", "peer 12D3 false", "peer 12D3 true", "revoke k1", "revoke k0", "unpin  r1",
	}
	if !slices.Equal(node.changes, want) {
		t.Errorf("the node was changed by %q, want %q", node.changes, want)
	}
}

// `token --file` writes a ticket of its own into each file, for its user alone, and prints nothing. `--wait` tries again
// while the node cannot make a ticket, and no longer.
func TestTokenWritesFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
		if err := os.WriteFile(one, []byte("an old ticket"), 0o644); err != nil {
			t.Fatal(err)
		}
		busy := &client.Error{Status: http.StatusServiceUnavailable, Detail: "no leader is known"}
		got := call(t, &fakeNode{tickets: []error{busy, errors.New("no node runs")}}, "", "token", "--wait", "1m", "--ttl", "90m", "--file", one, "--file", two)
		if got.code != exitOK || got.out != "" || got.errOut != "" {
			t.Errorf("%+v", got)
		}
		for _, path := range []string{one, two} {
			text, err := os.ReadFile(path)
			if err != nil || string(text) != "ticket-1h30m0s\n" {
				t.Errorf("%s: %q, %v", path, text, err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
		}
		for name, tc := range map[string]struct {
			err  error
			wait string
		}{
			"without --wait":            {busy, "0"},
			"an error that waits not":   {&client.Error{Status: http.StatusForbidden, Detail: "no"}, "1m"},
			"a busy node, for too long": {busy, "1ms"},
		} {
			path := filepath.Join(dir, "three")
			got := call(t, &fakeNode{tickets: slices.Repeat([]error{tc.err}, 9)}, "", "token", "--wait", tc.wait, "--file", path)
			if got.code != exitFailure || !strings.Contains(got.errOut, tc.err.Error()) {
				t.Errorf("%s: %+v", name, got)
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: the file: %v", name, err)
			}
		}
		if got := call(t, &fakeNode{}, "", "token", "--file", filepath.Join(dir, "none", "ticket")); got.code != exitFailure || !strings.Contains(got.errOut, "none") {
			t.Errorf("%+v", got)
		}
	})
}

// `pin ls` prints at most --limit pins, also as JSON, and says on standard error if there are more.
func TestListOfPinsStopsAtItsLimit(t *testing.T) {
	node := &fakeNode{pins: []client.PinStatus{{RequestID: "r3", Status: "pinned"}, {RequestID: "r2", Status: "failed"}, {RequestID: "r1", Status: "pinned"}}}
	for _, tc := range []struct {
		args string
		rows int
		more bool
	}{
		{"--limit 2", 2, true},
		{"--limit 3", 3, false},
		{"--limit 0", 3, false},
		{"--limit 2 --status pinned", 2, false},
		{"--limit 1 --status failed,pinned", 1, true},
	} {
		got := call(t, node, "", append([]string{"pin", "ls"}, strings.Fields(tc.args)...)...)
		if rows := strings.Count(got.out, "\n") - 1; rows != tc.rows || (got.errOut != "") != tc.more {
			t.Errorf("%s: %+v, want %d rows", tc.args, got, tc.rows)
		}
		got = call(t, node, "", append([]string{"pin", "ls", "--json"}, strings.Fields(tc.args)...)...)
		if rows := strings.Count(got.out, `"requestid"`); rows != tc.rows || (got.errOut != "") != tc.more {
			t.Errorf("%s --json: %+v, want %d rows", tc.args, got, tc.rows)
		}
	}
}

// `pin ls` sends its whole filter to the node, so that a list of few pins of many reads few. A malformed filter is
// wrong usage. `pin add` sends the meta that its flags give.
func TestPinsAreFilteredByTheNode(t *testing.T) {
	const content = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"
	node := &fakeNode{}
	got := call(t, node, "", "pin", "ls", "--status", "failed,pinned", "--cid", "ipfs://"+content, "--name", "back", "--match", "ipartial", "--meta", "app=a=b", "--meta", "empty=")
	want := client.PinFilter{
		CIDs: []string{content}, Statuses: []string{"failed", "pinned"}, Name: "back", Match: "ipartial", Meta: map[string]string{"app": "a=b", "empty": ""},
	}
	if got.code != exitOK || len(node.filters) != 1 || !reflect.DeepEqual(node.filters[0], want) {
		t.Errorf("%+v; asked for %+v, want %+v", got, node.filters, want)
	}
	for args, named := range map[string]string{
		"ls --match close --name a": "close", "ls --match exact": "--name", "ls --meta app": "key=value", "ls --meta =x": "key=value",
		"ls --meta a=x --meta a=y": `"a" twice`, "add " + content + " --meta app": "key=value",
	} {
		if got := call(t, node, "", append([]string{"pin"}, strings.Fields(args)...)...); got.code != exitUsage || !strings.Contains(got.errOut, named) {
			t.Errorf("pin %s: %+v, want %q", args, got, named)
		}
	}
	if got := call(t, node, "", "pin", "add", content, "--meta", "app=a=b"); got.code != exitOK || node.pins[0].Pin.Meta["app"] != "a=b" {
		t.Errorf("pin add: %+v, %+v", got, node.pins)
	}
}

// `key create` asks the node for the key that its flags describe, and prints each field of the answer as JSON.
func TestKeyIsAskedForAsTyped(t *testing.T) {
	node := &fakeNode{}
	got := call(t, node, "", "key", "create", "--user", "a@b", "--name", "n", "--scope", "storage:read", "--ttl", "24h", "--json")
	want := client.NewKey{User: "a@b", Name: "n", Scopes: []string{"storage:read"}, TTL: "24h0m0s"}
	if len(node.keys) != 1 || node.keys[0].User != want.User || node.keys[0].Name != want.Name || node.keys[0].TTL != want.TTL || strings.Join(node.keys[0].Scopes, " ") != "storage:read" {
		t.Errorf("asked for %+v, want %+v (%+v)", node.keys, want, got)
	}
	for _, field := range []string{`"id": "k1"`, `"token": "a.b.c"`, `"access_key_id"`, `"secret_access_key"`, `"scope": "storage:read"`, `"created"`} {
		if !strings.Contains(got.out, field) {
			t.Errorf("no %s in %s", field, got.out)
		}
	}
}
