//go:build conformance

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/multiformats/go-multiaddr"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// commands are all commands, with flags that they must have.
var commands = map[string][]string{
	"run": {
		"--listen", "--cluster-listen", "--announce", "--pinning-listen", "--s3-listen", "--console-listen",
		"--paid-listen", "--gateway-listen", "--admin-listen", "--routing", "--bootstrap", "--replication",
		"--allow-private-origins", "--log-level", "--log-format", "--join", "--secret-file", "--data",
	},
	"token":        {"--ttl", "--data"},
	"status":       {"--json", "--data"},
	"peers ls":     {"--json", "--data"},
	"peers rm":     {"--force", "--data"},
	"peers drain":  {"--cancel", "--wait", "--yes", "--json", "--data"},
	"user add":     {"--password-stdin", "--data"},
	"user ls":      {"--json", "--data"},
	"user rm":      {"--data"},
	"user show":    {"--json", "--data"},
	"user passwd":  {"--data"},
	"user quota":   {"--data"},
	"user grant":   {"--posting", "--note", "--data"},
	"user refund":  {"--posting", "--note", "--data"},
	"user disable": {"--yes", "--json", "--data"},
	"user enable":  {"--json", "--data"},
	"user correct": {"--credits", "--posting", "--note", "--data"},
	"user ledger":  {"--json", "--csv", "--limit", "--after", "--data"},
	"user link":    {"--json", "--data"},
	"user link ls": {"--json", "--data"},
	"user link rm": {"--data"},
	"console link": {"--json", "--data"},
	"key create":   {"--user", "--name", "--scope", "--ttl", "--json", "--env", "--data"},
	"key ls":       {"--json", "--data"},
	"key revoke":   {"--data"},
	"key show":     {"--json", "--data"},
	"key rotate":   {"--json", "--data"},
	"app add":      {"--redirect", "--scope", "--json", "--data"},
	"app ls":       {"--json", "--data"},
	"app rm":       {"--yes", "--json", "--data"},
	"audit ls":     {"--action", "--actor", "--target", "--since", "--until", "--limit", "--json", "--data"},
	"audit verify": {"--json", "--data"},
	"paid ls":      {"--limit", "--json", "--data"},
	"scrub":        {"--json", "--data"},
	"gc":           {"--json", "--data"},
	"fsck":         {"--json", "--data"},
	"backup":       {"--json", "--data"},
	"restore":      {"--json", "--data"},
	"recover":      {"--i-lost-quorum", "--yes", "--json", "--data"},
	"pin add":      {"--user", "--profile", "--endpoint", "--token", "--meta", "--data"},
	"pin ls":       {"--user", "--profile", "--endpoint", "--token", "--json", "--cid", "--name", "--match", "--meta", "--data"},
	"pin get":      {"--user", "--profile", "--endpoint", "--token", "--data"},
	"pin rm":       {"--user", "--profile", "--endpoint", "--token", "--data"},
	"pin import":   {"--from", "--format", "--token-file", "--status", "--origin", "--parallel", "--user", "--json", "--data"},
	"add":          {"--user", "--profile", "--endpoint", "--token", "--name", "--hash", "--cid-version", "--hidden", "--json", "--data"},
	"get":          {"-o", "--user", "--data", "--endpoint", "--token", "--verify", "--blake3"},
	"car import":   {"--user", "--profile", "--endpoint", "--token", "--name", "--json", "--data"},
	"car export":   {"-o", "--user", "--data"},
	"put":          {"--encrypt", "--identity", "--endpoint", "--token", "--json"},
	"ls":           {"--endpoint", "--token", "--recursive", "--json"},
	"profile add":  {"--endpoint", "--pinning", "--console", "--identity", "--json"},
	"profile ls":   {"--json"},
	"rewrap":       {"--identity", "--to", "--json"},
	"share create": {"--identity", "--to", "--link", "--read-only", "--read-write", "--full-access", "--whole-bucket", "--expires", "--name", "--console", "--endpoint", "--token", "--json"},
	"share open":   {"--identity", "--from", "--put", "--rm", "--endpoint", "--json"},
	"share ls":     {"--all", "--endpoint", "--token", "--json"},
	"share revoke": {"--endpoint", "--token", "--yes", "--json"},
	"keygen":       {"--passphrase-file", "--rotate", "--json"},
	"sync":         {"--encrypt", "--identity", "--endpoint", "--token", "--delete", "--dry-run", "--checksum", "--verify", "--json"},
	"rm":           {"--endpoint", "--token", "--recursive", "--yes", "--json"},
	"demo":         nil,
	"version":      {"--json"},
	"help":         nil,
	"completion":   {"bash", "zsh", "fish"},
}

// TestEveryCommandExplainsItself promises that the help of each command names its flags, and that shells complete
// each command with its flags and the commands below it. Each command that the help lists is one of commands.
func TestEveryCommandExplainsItself(t *testing.T) {
	seen := map[string]bool{}
	for _, h := range everyCommand(t) {
		seen[h.words] = true
		flags, listed := commands[h.words]
		if !listed && len(h.below) == 0 {
			t.Errorf("the commands of this test lack %q", h.words)
		}
		for _, f := range flags {
			if !strings.Contains(h.text, f) {
				t.Errorf("%s --help does not name %s", h.words, f)
			}
		}
		completesAll(t, &h)
	}
	for command := range commands {
		if !seen[command] {
			t.Errorf("no help lists the command %q", command)
		}
	}
}

// oneLine is a clear message: one line, and not the name of a Go type.
func oneLine(s string) bool {
	return strings.Count(strings.TrimSpace(s), "\n") == 0 && len(strings.TrimSpace(s)) > 10
}

// TestWrongUseIsTold promises that wrong use ends with exit code 2 or 1 and a message that names what is wrong.
func TestWrongUseIsTold(t *testing.T) {
	dir := func(config string) []string {
		d := t.TempDir()
		if config != "" {
			if err := os.WriteFile(filepath.Join(d, "config.toml"), []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return []string{"run", "--data", d}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	busy := func(flag, value string) []string {
		args := append(dir(""), "--routing", "off")
		for _, f := range []string{"--pinning-listen", "--s3-listen", "--console-listen", "--admin-listen"} {
			if f != flag {
				args = append(args, f, "127.0.0.1:0")
			}
		}
		for f, v := range map[string]string{"--listen": "/ip4/127.0.0.1/tcp/0", "--cluster-listen": "/ip4/127.0.0.1/tcp/0"} {
			if f != flag {
				args = append(args, f, v)
			}
		}
		return append(args, flag, fmt.Sprintf(value, port))
	}
	for _, tc := range []struct {
		name  string
		env   []string
		args  []string
		code  int
		names string // what the message must name
	}{
		{"no such command", nil, []string{"fly"}, 2, "fly"},
		{"no such subcommand", nil, []string{"peers", "fly"}, 2, "fly"},
		{"no such flag", nil, []string{"status", "--fast"}, 2, "fast"},
		{"no such flag of run", nil, append(dir(""), "--fast"), 2, "fast"},
		{"an argument missing", nil, []string{"pin", "get", "--data", t.TempDir()}, 2, ""},
		{"an argument too many", nil, []string{"status", "extra", "--data", t.TempDir()}, 2, ""},
		{"a bad value of a flag", nil, append(dir(""), "--replication", "many"), 2, "replication"},
		{"a choice that a setting does not have", nil, append(dir(""), "--routing", "psychic"), 2, "routing"},
		{"an unknown key in the file", nil, dir("[pinning]\ncolour = \"red\"\n"), 1, "pinning.colour"},
		{"an unknown section in the file", nil, dir("[colour]\nred = 1\n"), 1, "colour"},
		{"a bad value in the file", nil, dir("[repair]\nafter = \"soon\"\n"), 1, "repair.after"},
		{"a file that is no TOML", nil, dir("what?"), 1, "config.toml"},
		{"an unknown variable", []string{"HOLDFAST_PINNING_COLOUR=red"}, dir(""), 1, "HOLDFAST_PINNING_COLOUR"},
		{"a bad value of a variable", []string{"HOLDFAST_REPAIR_AFTER=soon"}, dir(""), 1, "HOLDFAST_REPAIR_AFTER"},
		{"a session shorter than a second", []string{"HOLDFAST_SESSION_LIFETIME=999ms"}, dir(""), 1, "HOLDFAST_SESSION_LIFETIME"},
		{"a session that is idle at once", []string{"HOLDFAST_SESSION_IDLE=0s"}, dir(""), 1, "HOLDFAST_SESSION_IDLE"},
		{"a certificate without its key", []string{"HOLDFAST_API_TLS_CERT=cert.pem"}, dir(""), 1, "api.tls_key"},
		{"no node runs here", nil, []string{"status", "--data", t.TempDir()}, 1, ""},
		{"a port that is taken", nil, busy("--pinning-listen", "127.0.0.1:%d"), 1, "--pinning-listen"},
		{"another port that is taken", nil, busy("--admin-listen", "127.0.0.1:%d"), 1, "--admin-listen"},
		{"a cluster port that is taken", nil, busy("--cluster-listen", "/ip4/127.0.0.1/tcp/%d"), 1, "--cluster-listen"},
		{"a public port that is taken", nil, busy("--listen", "/ip4/127.0.0.1/tcp/%d"), 1, "--listen"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := harness.Run(t, tc.env, "", tc.args...)
			if r.Code != tc.code {
				t.Errorf("exit code %d, want %d: %s", r.Code, tc.code, r.Stderr)
			}
			if !strings.Contains(r.Stderr, tc.names) || strings.TrimSpace(r.Stderr) == "" {
				t.Errorf("the message does not name %q: %s", tc.names, r.Stderr)
			}
		})
	}
}

// TestANodeAlone promises that the commands work on one node that chose all its ports itself, and that a restart
// keeps its identity, cluster and pins. Others may not use its files, and a second node in its folder is refused.
func TestANodeAlone(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 1, Args: []string{"--s3-listen", "127.0.0.1:0"}})
	n := c.Nodes[0]
	t.Run("files of the data folder", func(t *testing.T) {
		for _, name := range []string{"config.toml", "cluster.secret"} {
			if _, err := os.Stat(filepath.Join(n.Dir, name)); err != nil {
				t.Error(err)
			}
		}
		if info, err := os.Stat(c.SecretFile()); err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("the secret has mode %s", info.Mode())
		}
		err := filepath.WalkDir(n.Dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a store has removed it since
			}
			if err == nil && path != n.Dir && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("others may use %s: %s", path, info.Mode())
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	t.Run("health", func(t *testing.T) { testHealth(t, n) })
	t.Run("status", func(t *testing.T) { testStatus(t, n) })
	t.Run("accounts and keys", func(t *testing.T) { testAccounts(t, n) })
	t.Run("pins", func(t *testing.T) { testPinCommands(t, n) })
	t.Run("a ticket is one line", func(t *testing.T) {
		out := n.CLI("token", "--ttl", "1h")
		if strings.Count(out, "\n") != 1 || strings.ContainsAny(strings.TrimSpace(out), " \t") {
			t.Errorf("%q", out)
		}
	})
	t.Run("a second node in the same folder is refused", func(t *testing.T) {
		r := n.TryCLI("", "run", "--routing", "off", "--pinning-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
		if r.Code != 1 || r.Stderr == "" {
			t.Errorf("exit code %d: %s", r.Code, r.Stderr)
		}
	})
	before := statusOf(t, n)
	n.Stop() // wants exit code 0
	n.Restart()
	c.Settle()
	if after := statusOf(t, n); after.Node.ID != before.Node.ID || after.ClusterID != before.ClusterID || after.Pins != before.Pins {
		t.Errorf("%+v, before the restart %+v", after, before)
	}
}

// statusOf is `status --json` of a node, with unknown fields refused.
func statusOf(t *testing.T, n *harness.Node) (s harness.Status) {
	t.Helper()
	out := n.CLI("status", "--json")
	if err := harness.DecodeStrict([]byte(out), &s); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return s
}

// TestPortZeroTellsTheRealPorts promises that the status of a node that chooses every port has the real ports, and
// its peer id in each address.
func TestPortZeroTellsTheRealPorts(t *testing.T) {
	c := harness.Start(t, harness.Options{Nodes: 1, Args: []string{
		"--s3-listen", "127.0.0.1:0", "--console-listen", "127.0.0.1:0", "--cluster-listen", "/ip4/127.0.0.1/tcp/0",
	}})
	s := statusOf(t, c.Nodes[0])
	for _, addr := range append(slices.Clone(s.Node.Addrs), s.Node.ClusterAddrs...) {
		a, err := multiaddr.NewMultiaddr(addr)
		if err != nil {
			t.Errorf("%q: %v", addr, err)
			continue
		}
		port, err := a.ValueForProtocol(multiaddr.P_TCP)
		if err != nil {
			port, err = a.ValueForProtocol(multiaddr.P_UDP)
		}
		if id, _ := a.ValueForProtocol(multiaddr.P_P2P); err != nil || port == "0" || id != s.Node.ID {
			t.Errorf("%q: %v", addr, err)
		}
	}
	for _, hostPort := range []string{s.Node.S3, s.Node.Console} {
		if strings.HasSuffix(hostPort, ":0") {
			t.Errorf("status tells port 0: %+v", s.Node)
		}
	}
}

func testHealth(t *testing.T, n *harness.Node) {
	for _, base := range []string{n.URL(), n.AdminURL()} {
		for _, path := range []string{"/healthz", "/readyz"} {
			resp, err := http.Get(base + path)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s%s: %d", base, path, resp.StatusCode)
			}
		}
	}
	named := false
	for name := range n.Metrics() {
		named = named || strings.HasPrefix(name, "holdfast_")
	}
	if !named {
		t.Error("no metric begins with holdfast_")
	}
}

// statusFields are the members of `status --json` and its parts, as the
// contract has them.
var statusFields = map[string][]string{
	"":     {"cluster_id", "leader", "index", "node", "peers", "pins"},
	"node": {"id", "name", "addrs", "cluster_addrs", "pinning", "s3", "console"},
	"peer": {"id", "name", "role", "state", "addrs", "version", "pins", "used_bytes", "free_bytes", "queue"},
	"pins": {"queued", "pinning", "pinned", "failed", "under_replicated"},
}

func hasFields(t *testing.T, what string, data json.RawMessage) {
	t.Helper()
	got := object(t, data)
	for _, f := range statusFields[what] {
		if _, ok := got[f]; !ok {
			t.Errorf("%q is missing in %s", f, data)
		}
	}
	if len(got) != len(statusFields[what]) {
		t.Errorf("%d members, want %v: %s", len(got), statusFields[what], data)
	}
}

func testStatus(t *testing.T, n *harness.Node) {
	whole := object(t, []byte(n.CLI("status", "--json")))
	hasFields(t, "", json.RawMessage(n.CLI("status", "--json")))
	hasFields(t, "node", whole["node"])
	hasFields(t, "pins", whole["pins"])
	var peers []json.RawMessage
	if err := json.Unmarshal(whole["peers"], &peers); err != nil || len(peers) != 1 {
		t.Fatalf("%s: %v", whole["peers"], err)
	}
	hasFields(t, "peer", peers[0])
	s := statusOf(t, n)
	p := s.Peers[0]
	if s.Leader != s.Node.ID || s.Index == 0 || s.ClusterID == "" || p.ID != s.Node.ID || p.Role != "voter" || p.State != "alive" || p.FreeBytes <= 0 {
		t.Errorf("%+v", s)
	}
	if "http://"+s.Node.Pinning != n.URL() {
		t.Errorf("pinning is %q, the API is at %s", s.Node.Pinning, n.URL())
	}
	if out := n.CLI("status"); !strings.Contains(out, s.Node.ID[len(s.Node.ID)-6:]) || !strings.Contains(out, "  metrics  http://") {
		t.Errorf("the text does not show the node:\n%s", out)
	}
	var rows []map[string]any
	if err := json.Unmarshal([]byte(n.CLI("peers", "ls", "--json")), &rows); err != nil || len(rows) != 1 || rows[0]["id"] != s.Node.ID {
		t.Errorf("peers ls: %v %v", rows, err)
	}
}

func testAccounts(t *testing.T, n *harness.Node) {
	key := n.UserKey("cli@example.org", "--name", "laptop", "--scope", "storage:read", "--ttl", "24h")
	if key.ID == "" || strings.Count(key.Token, ".") != 2 || key.AccessKeyID == "" || key.SecretAccessKey == "" || key.Scope != "storage:read" || key.Created == "" {
		t.Errorf("%+v", key)
	}
	hasFields := object(t, []byte(n.CLI("key", "create", "--user", "cli@example.org", "--json")))
	for _, f := range []string{"id", "token", "access_key_id", "secret_access_key", "scope", "created"} {
		if _, ok := hasFields[f]; !ok {
			t.Errorf("key create --json lacks %q", f)
		}
	}
	var users, keys []map[string]any
	for out, rows := range map[string]*[]map[string]any{
		n.CLI("user", "ls", "--json"): &users,
		n.CLI("key", "ls", "--json"):  &keys,
	} {
		if err := json.Unmarshal([]byte(out), rows); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		if strings.Contains(out, key.Token) || strings.Contains(out, key.SecretAccessKey) {
			t.Errorf("a list shows a secret: %s", out)
		}
	}
	if !slices.ContainsFunc(keys, func(k map[string]any) bool { return k["id"] == key.ID && k["name"] == "laptop" }) {
		t.Errorf("key ls: %v", keys)
	}
	for _, tc := range []struct {
		code  int
		stdin string
		args  []string
	}{
		{1, "a password of some length\n", []string{"user", "add", "cli@example.org", "--password-stdin"}}, // again
		{2, "a password of some length\n", []string{"user", "add", "not an address", "--password-stdin"}},
		{1, "short\n", []string{"user", "add", "other@example.org", "--password-stdin"}},
		{1, "", []string{"key", "create", "--user", "nobody@example.org"}},
		{2, "", []string{"key", "create", "--user", "cli@example.org", "--scope", "storage:fly"}},
		{2, "", []string{"key", "create", "--user", "cli@example.org", "--name", strings.Repeat("n", 256)}},
		{1, "", []string{"key", "revoke", "unknown"}},
		{2, "", []string{"token", "--ttl", "1ms"}},
		{2, "", []string{"pin", "add", "notacid"}},
		{2, "", []string{"get", "notacid"}},
		{2, "", []string{"get", "notacid", "--user", "cli@example.org"}},
		{1, "", []string{"pin", "ls", "--user", "nobody@example.org"}},
	} {
		if r := n.TryCLI(tc.stdin, tc.args...); r.Code != tc.code || !oneLine(r.Stderr) {
			t.Errorf("%v: exit code %d, not %d, %q", tc.args, r.Code, tc.code, r.Stderr)
		}
	}
	n.CLI("key", "revoke", key.ID)
	if _, err := n.Pins(key.Token).List(t.Context(), nil); err == nil {
		t.Error("the revoked key still lists")
	}
}

func testPinCommands(t *testing.T, n *harness.Node) {
	source := harness.StartBoxo(t)
	offered := source.AddBytes([]byte("content of a foreign peer"))
	path := filepath.Join(t.TempDir(), "file")
	data := []byte(strings.Repeat("content of our own\n", 100_000))
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	added := cidOf(t, n.CLI("add", path))
	path = filepath.Join(t.TempDir(), "got")
	n.CLI("get", added, "-o", path)
	if got, err := os.ReadFile(path); err != nil || string(got) != string(data) {
		t.Errorf("add and get: %d bytes, want %d: %v", len(got), len(data), err)
	}
	if out := n.CLI("get", added); out != string(data) {
		t.Errorf("get to standard output: %d bytes, want %d", len(out), len(data))
	}
	if out := n.CLI("get", added, "--user", "cli@example.org"); out != string(data) { // a pin shows it to everybody
		t.Errorf("get for another account: %d bytes, want %d", len(out), len(data))
	}
	for _, user := range []string{"nobody@example.org", "notanemail"} {
		if r := n.TryCLI("", "get", added, "--user", user); r.Code != 1 || r.Stdout != "" || !oneLine(r.Stderr) {
			t.Errorf("get for %s: exit code %d, %d bytes, %q", user, r.Code, len(r.Stdout), r.Stderr)
		}
	}
	got, err := source.Fetch(added, n.Status().Node.Addrs)
	if err != nil || !got.Matches(data) {
		t.Errorf("a foreign peer fetches what add added: %+v: %v", got, err)
	}
	// The source is connected to the node by now, so no origin is needed.
	n.CLI("pin", "add", offered.CID, "--name", "Offered", "--meta", "app=cli")
	var pins []map[string]any
	harness.Eventually(t, pinnedWithin, "the pin is pinned", func() (bool, error) {
		out := n.CLI("pin", "ls", "--json")
		if err := json.Unmarshal([]byte(out), &pins); err != nil {
			return false, err
		}
		return slices.ContainsFunc(pins, func(p map[string]any) bool {
			pin, _ := p["pin"].(map[string]any)
			return pin["cid"] == offered.CID && p["status"] == "pinned"
		}), fmt.Errorf("%s", out)
	})
	for _, filter := range [][]string{{"--meta", "app=cli"}, {"--cid", offered.CID, "--name", "offered", "--match", "iexact"}, {"--name", "ffer", "--match", "partial", "--status", "pinned"}} {
		if out := n.CLI(append([]string{"pin", "ls", "--json"}, filter...)...); strings.Count(out, "requestid") != 1 || !strings.Contains(out, offered.CID) {
			t.Errorf("pin ls %v: %s", filter, out)
		}
	}
	if out := strings.TrimSpace(n.CLI("pin", "ls", "--json", "--meta", "app=other")); out != "[]" {
		t.Errorf("pin ls of other meta: %s", out)
	}
	for _, p := range pins {
		id, _ := p["requestid"].(string)
		if out := n.CLI("pin", "get", id); !strings.Contains(out, id) {
			t.Errorf("pin get: %s", out)
		}
		n.CLI("pin", "rm", id)
	}
	if out := strings.TrimSpace(n.CLI("pin", "ls", "--json")); out != "[]" {
		t.Errorf("after pin rm of all: %s", out)
	}
	for _, args := range [][]string{{"pin", "get", "unknown"}, {"pin", "rm", "unknown"}, {"pin", "add", "hello"}, {"get", "hello"}, {"add", "/no/such/file"}} {
		if r := n.TryCLI("", args...); r.Code == 0 || !oneLine(r.Stderr) {
			t.Errorf("%v: exit code %d, %q", args, r.Code, r.Stderr)
		}
	}
}

// cidOf finds the CID in what `add` printed.
func cidOf(t *testing.T, out string) string {
	t.Helper()
	for _, word := range strings.Fields(out) {
		if strings.HasPrefix(word, "baf") {
			return word
		}
	}
	t.Fatalf("no CID in %q", out)
	return ""
}
