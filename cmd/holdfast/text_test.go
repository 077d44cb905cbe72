package main

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
	"github.com/multiformats/go-multiaddr"
)

// someStatus returns a cluster of three in which not all is well.
func someStatus() client.Status {
	var s client.Status
	s.ClusterID, s.Leader, s.Index = "5b0c6a54-1f0e-4a53-9a0c-1d2f3a4b5c6d", "12D3KooWBeta", 8123
	s.Node.ID, s.Node.Name = "12D3KooWAlpha", "alpha"
	s.Node.Addrs = []string{"/ip4/10.0.0.1/tcp/4001/p2p/12D3KooWAlpha"}
	s.Node.ClusterAddrs = []string{"/ip4/10.0.0.1/tcp/9096/p2p/12D3KooWAlpha"}
	s.Node.Pinning, s.Node.Admin = "127.0.0.1:9097", "127.0.0.1:9094"
	s.Peers = []client.Peer{
		{ID: "12D3KooWAlpha", Name: "alpha", Role: "voter", State: "alive", Version: "v0.1.0", Pins: 12, UsedBytes: 1 << 30, FreeBytes: 900 << 30, Queue: 3},
		{ID: "12D3KooWBeta", Name: "beta-with-a-long-name", Role: "voter", State: "suspect", Version: "v0.1.0", Pins: 1200, PinsPartial: true, UsedBytes: 999, FreeBytes: 1 << 20},
		{ID: "12D3KooWGamma", Name: "gämma", Role: "nonvoter", State: "down"},
	}
	s.Pins.Queued, s.Pins.Pinning, s.Pins.Pinned, s.Pins.Failed, s.Pins.UnderReplicated = 4, 3, 1200, 1, 2
	return s
}

// `status` prints a cluster as the golden files have it, with and without colours and without a leader. Its URLs have
// https if the node has TLS. The JSON omits the fields tls and admin, which are not in the contract with scripts.
func TestStatusForPeople(t *testing.T) {
	var plain, painted, alone bytes.Buffer
	writeStatus(&plain, false, someStatus())
	goldentest.File(t, filepath.Join("testdata", "status.txt"), plain.Bytes())
	writeStatus(&painted, true, someStatus())
	goldentest.File(t, filepath.Join("testdata", "status-colour.txt"), painted.Bytes())
	writeStatus(&alone, false, client.Status{Peers: []client.Peer{{}}})
	goldentest.File(t, filepath.Join("testdata", "status-no-leader.txt"), alone.Bytes())
	var secure bytes.Buffer
	s := someStatus()
	s.Node.S3, s.Node.TLS = "127.0.0.1:9000", true
	writeStatus(&secure, false, s)
	for _, want := range []string{"  pinning  https://127.0.0.1:9097\n", "  s3       https://127.0.0.1:9000\n", "  metrics  http://127.0.0.1:9094/metrics\n"} {
		if !strings.Contains(secure.String(), want) {
			t.Errorf("with TLS there is no %q in\n%s", want, secure.String())
		}
	}
	got := call(t, &fakeNode{status: s}, "", "status", "--json")
	if got.code != exitOK || strings.Contains(got.out, "tls") || strings.Contains(got.out, "admin") {
		t.Errorf("a field that scripts do not know: %+v", got)
	}
}

// The table of members shows no free bytes, used bytes or queue of a member that has reported none. A member that has
// just joined is not shown as one without free bytes, and a full disk still counts as a figure.
func TestFiguresThatNobodyHasReportedAreUnknown(t *testing.T) {
	var s client.Status
	s.Peers = []client.Peer{{ID: "joined", State: "alive", Version: "v1"}, {ID: "filled", State: "alive", UsedBytes: 7, Full: true, Queue: 2}, {ID: "empty", State: "alive", FreeBytes: 9}}
	var b bytes.Buffer
	writePeers(&b, false, &s)
	for id, want := range map[string]string{"joined": "alive 0 - - - v1", "filled": "alive 0 7 0 full 2", "empty": "alive 0 0 9 0"} {
		for line := range strings.Lines(b.String()) {
			if got := strings.Join(strings.Fields(line), " "); strings.HasSuffix(got, id) && got != want+" "+id {
				t.Errorf("%q, want %q", got, want+" "+id)
			}
		}
		if !strings.Contains(b.String(), id) {
			t.Errorf("no row for %s:\n%s", id, &b)
		}
	}
}

// `status` exits with code 1 and says which votes are missing if the cluster cannot write. Its JSON keeps the fields
// of the contract.
func TestStatusSaysWhetherTheClusterCanWrite(t *testing.T) {
	const why = "2 of 3 votes are needed and 1 is here; missing: beta (...KooWBeta, last heard of 14 s ago)"
	for _, tc := range []struct {
		name string
		node fakeNode
		code int
		says string
	}{
		{"healthy", fakeNode{}, exitOK, ""},
		{"two votes", fakeNode{quorum: client.Quorum{Warning: "two votes"}}, exitOK, "\nwarning  two votes\n"},
		{"no majority", fakeNode{quorum: client.Quorum{Why: why}}, exitFailure, "\ncannot write  " + why + "\n"},
		{"a node of a release before", fakeNode{quorumErr: &client.Error{Status: 404}}, exitOK, ""},
	} {
		tc.node.status = someStatus()
		got := call(t, &tc.node, "", "status")
		if got.code != tc.code || !strings.HasSuffix(got.out, tc.says) || (tc.says == "") != strings.HasSuffix(got.out, "with too few copies\n") {
			t.Errorf("%s: %+v", tc.name, got)
		}
		if tc.code != exitOK && got.errOut != "holdfast: the cluster cannot write: "+why+"\n" {
			t.Errorf("%s: %q", tc.name, got.errOut)
		}
		asJSON := call(t, &tc.node, "", "status", "--json")
		if asJSON.code != tc.code || !strings.HasPrefix(asJSON.out, "{") || strings.Contains(asJSON.out, "votes") || asJSON.errOut != got.errOut {
			t.Errorf("%s as JSON: %+v", tc.name, asJSON)
		}
	}
	leaderless := fakeNode{quorumErr: &client.Error{Status: 404}}
	if got := call(t, &leaderless, "", "status"); got.code != exitFailure {
		t.Errorf("no leader, and the node tells nothing of votes: %+v", got)
	}
	broken := fakeNode{quorumErr: &client.Error{Status: 500, Detail: "broken"}}
	if got := call(t, &broken, "", "status"); got.code != exitFailure || !strings.Contains(got.errOut, "broken") {
		t.Errorf("the votes cannot be asked for: %+v", got)
	}
}

// The text at the start of a node has its addresses and the next commands, and is not printed if the log is JSON.
func TestBoardSaysWhereAndWhatNext(t *testing.T) {
	where := addresses{
		Name: "alpha", ID: "12D3KooWAlpha",
		Public:  []string{"/ip4/10.0.0.1/tcp/4001/p2p/12D3KooWAlpha"},
		Cluster: []string{"/ip4/10.0.0.1/tcp/9096/p2p/12D3KooWAlpha"},
		Pinning: "127.0.0.1:9097", Gateway: "127.0.0.1:8080", Admin: "127.0.0.1:9094",
	}
	c := config.Default()
	c.Data = "/srv/my node"
	var errs bytes.Buffer
	a := &app{version: "v0.1.0", stderr: &errs}
	a.board(c, where)
	goldentest.File(t, filepath.Join("testdata", "board.txt"), errs.Bytes())
	errs.Reset()
	c.Log.Format = "json"
	if a.board(c, where); errs.Len() > 0 {
		t.Errorf("a board among JSON: %s", errs.String())
	}
}

// A writer that is no terminal gets no colours.
func TestColoursOnlyWhereWanted(t *testing.T) {
	var b bytes.Buffer
	if paletteOf(&b, nil) {
		t.Error("a buffer is no terminal")
	}
	if got := palette(false).state("alive"); got != "alive" {
		t.Errorf("%q", got)
	}
}

// Sizes, times, quoted paths and counts are printed in the forms that people read. Control characters are replaced.
func TestWordsForPeople(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{humanBytes(0), "0 B"},
		{humanBytes(999), "999 B"},
		{humanBytes(1000), "1.0 KiB"},
		{humanBytes(8 << 20), "8.0 MiB"},
		{humanBytes(uint64(1<<64 - 1)), "16.0 EiB"},
		{humanTime(1500 * time.Microsecond), "1.5 ms"},
		{humanTime(250 * time.Millisecond), "250 ms"},
		{humanTime(2340 * time.Millisecond), "2.3 s"},
		{humanTime(61 * time.Second), "1m1s"},
		{shellQuote("/srv/node-1"), "/srv/node-1"},
		{shellQuote("/srv/my node"), "'/srv/my node'"},
		{shellQuote("it's"), `'it'\''s'`},
		{shellQuote(""), "''"},
		{oneLine("a\n  b\n\nc"), "a; b; c"},
		{printable("a\x00\u009bb"), "a??b"},
		{printable("gpj.\u202Eexe ü"), "gpj.?exe ü"},
		{plural(1, "member"), "1 member"},
		{plural(0, "member"), "0 members"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
}

// A new data folder gets a settings file that loads as the defaults, and a file that is there stays. The folder has
// mode 0700 and the file mode 0600.
func TestNewFolderGetsSettingsThatChangeNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "node")
	if err := writeTemplate(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	c, err := config.Load(dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := config.Default(); c.Pinning != want.Pinning || c.Cluster.Replication != want.Cluster.Replication {
		t.Errorf("%+v, want %+v", c, want)
	}
	path := filepath.Join(dir, config.FileName)
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the settings file, which may hold the cluster secret, has mode %v: %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("# mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeTemplate(dir); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "# mine\n" {
		t.Errorf("%q %v", data, err)
	}
}

// exposed lists exactly the files with secrets that other users can read.
func TestSecretsThatOthersCanReadAreNamed(t *testing.T) {
	secret := config.Default()
	secret.Cluster.Secret = "5e"
	for _, tc := range []struct {
		what         string
		folder, file fs.FileMode
		c            config.Config
		env          []string
		want         []string
	}{
		{"a folder of one's own", 0o700, 0o644, secret, nil, nil},
		{"files of one's own", 0o755, 0o600, secret, nil, nil},
		{"all can be read", 0o755, 0o644, secret, nil, []string{"cluster.secret", "identity.key", "config.toml"}},
		{"the group can read", 0o750, 0o640, secret, nil, []string{"cluster.secret", "identity.key", "config.toml"}},
		{"the group may search, others read", 0o710, 0o604, secret, nil, nil},
		{"no secret in the settings", 0o755, 0o644, config.Default(), nil, []string{"cluster.secret", "identity.key"}},
		{"the secret is in the environment", 0o755, 0o644, secret, []string{"HOLDFAST_SECRET=5e"}, []string{"cluster.secret", "identity.key"}},
	} {
		dir := t.TempDir()
		var want []string
		for _, name := range []string{"cluster.secret", "identity.key", "config.toml", "members.json"} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, name), tc.file); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range tc.want {
			want = append(want, filepath.Join(dir, name))
		}
		if err := os.Chmod(dir, tc.folder); err != nil {
			t.Fatal(err)
		}
		if got := exposed(dir, tc.c, tc.env); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", tc.what, got, want)
		}
	}
}

// The log has the level and the form of the settings.
func TestLogHasTheLevelAndFormOfTheSettings(t *testing.T) {
	for _, tc := range []struct {
		c     config.Log
		begin string
		debug bool
	}{
		{config.Log{Level: "debug", Format: "text"}, "time=", true},
		{config.Log{Level: "warn", Format: "json"}, `{"time"`, false},
	} {
		var b bytes.Buffer
		l := newLogger(&b, tc.c)
		l.Warn("x")
		if !bytes.HasPrefix(b.Bytes(), []byte(tc.begin)) || l.Enabled(t.Context(), slog.LevelDebug) != tc.debug {
			t.Errorf("%+v: %s", tc.c, b.String())
		}
	}
}

// A pin is printed without the control characters in its texts. An origin is any multiaddr, and a reason may repeat
// one: others write both.
func TestAPinTellsTheTerminalNothing(t *testing.T) {
	const evil = "/dns4/\x1b]0;evil\x07/tcp/4001"
	if _, err := multiaddr.NewMultiaddr(evil); err != nil {
		t.Fatal(err)
	}
	pin := client.PinStatus{
		RequestID: "r1", Status: "failed", Info: map[string]string{"status_details": evil, "dag_size": evil}, Delegates: []string{evil},
		Pin: client.Pin{CID: evil, Name: evil, Origins: []string{evil}, Meta: map[string]string{evil: evil}},
	}
	var one, list bytes.Buffer
	writePin(&one, false, pin)
	writePins(&list, false, []client.PinStatus{pin})
	for _, text := range []string{one.String(), list.String()} {
		if strings.ContainsAny(text, "\x1b\x07") || !strings.Contains(text, "?]0;evil?") {
			t.Errorf("%q", text)
		}
	}
}

// A node that was told to join and has no other member gets a warning at its start. One of two members gets the
// warning about two votes.
func TestTheBoardWarnsOfAJoinThatWasIgnored(t *testing.T) {
	for _, tc := range []struct {
		name    string
		members int
		join    []string
		want    string
	}{
		{"a founder", 1, nil, ""},
		{"a founder that was to join", 1, []string{"ticket"}, ignoredJoin},
		{"one of two", 2, []string{"ticket"}, "two votes"},
		{"one of two, the founder", 2, nil, "two votes"},
		{"one of three that keeps --join", 3, []string{"ticket"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := warningOf(tc.members, config.Cluster{Join: tc.join}, "two votes"); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
