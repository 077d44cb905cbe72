package config

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
)

// A setting with a list of values accepts each of them, and names all of them when it refuses another word. Its
// default is one of them.
func TestClosedSetsAcceptTheirValuesOnly(t *testing.T) {
	sets := 0
	for _, s := range Settings() {
		if len(s.Values) == 0 {
			continue
		}
		sets++
		if !slices.Contains(s.Values, strings.Trim(s.Default, `"`)) {
			t.Errorf("%s: the default %s is not one of %q", s.Key, s.Default, s.Values)
		}
		for _, word := range s.Values {
			if _, err := Load(folderWith(t, oneProvider), []string{s.Env + "=" + word}, nil); err != nil {
				t.Errorf("%s=%s: %v", s.Env, word, err)
			}
		}
		_, err := Load(t.TempDir(), []string{s.Env + "=other"}, nil)
		if want := "not one of " + strings.Join(s.Values, ", "); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s=other: %v, want %q", s.Env, err, want)
		}
	}
	if sets == 0 {
		t.Error("no setting has a list of values")
	}
}

// load writes file as the settings file of a new data folder and loads it.
func load(t *testing.T, file string, environ, args []string) (Config, error) {
	t.Helper()
	dir := t.TempDir()
	if file != "" {
		if err := os.WriteFile(filepath.Join(dir, FileName), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	Register(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	return Load(dir, environ, flags)
}

// A flag overrides the environment, the environment overrides the settings file, and the file overrides the default.
func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	const file = `
[peer]
listen = ["/ip4/10.0.0.1/tcp/1", "/ip4/10.0.0.1/tcp/2"]
allow_private_origins = true
[pinning]
listen = "127.0.0.1:1"
[cluster]
replication = 5
[repair]
after = "1m"
[storage]
segment_size = "8MiB"
cache = 2097152
`
	env := []string{
		"HOLDFAST_PEER_LISTEN=/ip4/10.0.0.2/tcp/1, /ip4/10.0.0.2/tcp/2",
		"HOLDFAST_PEER_ALLOW_PRIVATE_ORIGINS=false",
		"HOLDFAST_PINNING_LISTEN=127.0.0.1:2",
		"HOLDFAST_CLUSTER_REPLICATION=6",
		"HOLDFAST_REPAIR_AFTER=2m",
		"HOLDFAST_STORAGE_SEGMENT_SIZE=16 MiB",
		"PATH=/bin", "HOLDFAST_ENDPOINT=x", "HOLDFAST_DATA=/elsewhere",
	}
	args := []string{
		"--listen=/ip4/10.0.0.3/tcp/1", "--listen=/ip4/10.0.0.3/tcp/2", "--allow-private-origins",
		"--pinning-listen=", "--replication=7",
	}
	type picked struct {
		listen      []string
		private     bool
		pinning     string
		replication int
		after       time.Duration
		segment     Size
		cache       Size
	}
	def := Default()
	for _, tc := range []struct {
		name      string
		file      string
		env, args []string
		want      picked
	}{
		{"defaults", "", nil, nil, picked{def.Peer.Listen, false, "127.0.0.1:9097", 3, 10 * time.Minute, 256 * MiB, 64 * MiB}},
		{"file", file, nil, nil, picked{[]string{"/ip4/10.0.0.1/tcp/1", "/ip4/10.0.0.1/tcp/2"}, true, "127.0.0.1:1", 5, time.Minute, 8 * MiB, 2 * MiB}},
		{"environment", file, env, nil, picked{[]string{"/ip4/10.0.0.2/tcp/1", "/ip4/10.0.0.2/tcp/2"}, false, "127.0.0.1:2", 6, 2 * time.Minute, 16 * MiB, 2 * MiB}},
		{"flags", file, env, args, picked{[]string{"/ip4/10.0.0.3/tcp/1", "/ip4/10.0.0.3/tcp/2"}, true, "", 7, 2 * time.Minute, 16 * MiB, 2 * MiB}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := load(t, tc.file, tc.env, tc.args)
			if err != nil {
				t.Fatal(err)
			}
			got := picked{
				c.Peer.Listen, c.Peer.AllowPrivateOrigins, c.Pinning.Listen, c.Cluster.Replication,
				c.Repair.After, c.Storage.SegmentSize, c.Storage.Cache,
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

// The flags of `holdfast run` are those of this list, each with its key and its default.
func TestEveryRunFlagOfTheContractHasItsKeyAndDefault(t *testing.T) {
	contract := map[string][2]string{ // flag: key, default
		"listen":                {"peer.listen", `["/ip4/0.0.0.0/tcp/4001", "/ip4/0.0.0.0/udp/4001/quic-v1"]`},
		"cluster-listen":        {"peer.cluster_listen", `["/ip4/0.0.0.0/tcp/9096"]`},
		"announce":              {"peer.announce", `[]`},
		"pinning-listen":        {"pinning.listen", `"127.0.0.1:9097"`},
		"s3-listen":             {"s3.listen", `"127.0.0.1:9000"`},
		"console-listen":        {"console.listen", `"127.0.0.1:9001"`},
		"paid-listen":           {"paid.listen", `""`},
		"gateway-listen":        {"gateway.listen", `""`},
		"admin-listen":          {"admin.listen", `"127.0.0.1:9094"`},
		"name":                  {"node.name", `""`},
		"routing":               {"peer.routing", `"public"`},
		"bootstrap":             {"peer.bootstrap", `[]`},
		"replication":           {"cluster.replication", `3`},
		"allow-private-origins": {"peer.allow_private_origins", `false`},
		"log-level":             {"log.level", `"info"`},
		"log-format":            {"log.format", `"text"`},
		"join":                  {"cluster.join", `[]`},
		"secret-file":           {"cluster.secret_file", `""`},
	}
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	Register(flags)
	got := map[string][2]string{}
	names := map[string]bool{}
	for _, s := range Settings() {
		if names[s.Key] || names[s.Env] {
			t.Errorf("%s or %s is there twice", s.Key, s.Env)
		}
		names[s.Key], names[s.Env] = true, true
		if s.Flag == "" {
			continue
		}
		got[s.Flag] = [2]string{s.Key, s.Default}
		if flags.Lookup(s.Flag) == nil {
			t.Errorf("--%s is not registered", s.Flag)
		}
	}
	for flag := range got {
		if _, ok := contract[flag]; !ok {
			t.Errorf("--%s is not in the list of this test", flag)
		}
	}
	for flag, want := range contract {
		if got[flag] != want {
			t.Errorf("--%s has key and default %q, want %q", flag, got[flag], want)
		}
	}
	if !names["HOLDFAST_REPAIR_AFTER"] || !names["HOLDFAST_PINNING_DEFAULT_STATUS"] || !names["HOLDFAST_SECRET"] {
		t.Error("a variable named in the contract is missing")
	}
}

// Load refuses unknown settings and bad values in one line that names the setting and its source. Two addresses that
// overlap are bad values, too. The error lists all faults at once, shows no secret, and is a usage error only if a
// flag is wrong.
func TestWhatIsNotKnownOrNotValidIsRefusedByName(t *testing.T) {
	for _, tc := range []struct {
		name      string
		file      string
		env, args []string
		want      []string // each part of the message
		usage     bool
	}{
		{name: "key in a section", file: "[peer]\nlistn = []", want: []string{"config.toml", `unknown key "peer.listn"`}},
		{name: "section", file: "[pear]\nlisten = []", want: []string{`"pear.listen"`}},
		{name: "empty section", file: "[pear]", want: []string{`"pear"`}},
		{name: "key without a section", file: "replication = 3", want: []string{`"replication"`}},
		{name: "below a key", file: "[log.level]\nx = 1", want: []string{`"log.level.x"`}},
		{name: "data folder in the file", file: "[node]\ndata = \"/x\"", want: []string{`"node.data"`}},
		{name: "syntax", file: "[log]\nlevel = ", want: []string{"config.toml:2"}},
		{name: "key twice", file: "[log]\nlevel = \"info\"\nlevel = \"warn\"", want: []string{"config.toml", "level"}},
		{name: "variable", env: []string{"HOLDFAST_REPAIR_AFTR=1m"}, want: []string{"HOLDFAST_REPAIR_AFTR", "unknown"}},
		{name: "variable without a section", env: []string{"HOLDFAST_REPLICATION=1"}, want: []string{"HOLDFAST_REPLICATION", "unknown"}},
		{name: "time in the file", file: "[repair]\nafter = 10", want: []string{"config.toml", "repair.after", "10"}},
		{name: "time in the environment", env: []string{"HOLDFAST_REPAIR_AFTER=10"}, want: []string{"HOLDFAST_REPAIR_AFTER: repair.after", `"10"`}},
		{name: "empty time", env: []string{"HOLDFAST_REPAIR_AFTER="}, want: []string{"HOLDFAST_REPAIR_AFTER"}},
		{name: "negative time", env: []string{"HOLDFAST_REPAIR_AFTER=-1m"}, want: []string{"HOLDFAST_REPAIR_AFTER", "between"}},
		{name: "text for a number", file: "[cluster]\nreplication = \"3\"", want: []string{"cluster.replication"}},
		{name: "number too large", file: "[cluster]\nreplication = 99999999999", want: []string{"cluster.replication"}},
		{name: "no copies", args: []string{"--replication=0"}, want: []string{"--replication: cluster.replication", "0 is not between 1 and 32"}, usage: true},
		{name: "an origin with a port that browsers leave out", env: []string{"HOLDFAST_API_ORIGINS=https://b.example:443"}, want: []string{"api.origins", "would never match"}},
		{name: "size", env: []string{"HOLDFAST_STORAGE_CACHE=1PB"}, want: []string{"storage.cache", `"1PB"`}},
		{name: "size overflow", env: []string{"HOLDFAST_STORAGE_CACHE=9999999999TiB"}, want: []string{"storage.cache"}},
		{name: "truth", env: []string{"HOLDFAST_PEER_ALLOW_PRIVATE_ORIGINS=ja"}, want: []string{`"ja"`}},
		{name: "scalar for a list", file: "[peer]\nlisten = \"/ip4/0.0.0.0/tcp/1\"", want: []string{"peer.listen", "list"}},
		{name: "number in a list", file: "[peer]\nlisten = [1]", want: []string{"peer.listen"}},
		{name: "host:port for a multiaddr", args: []string{"--cluster-listen=0.0.0.0:9096"}, want: []string{"--cluster-listen", "0.0.0.0:9096", "multiaddr"}, usage: true},
		{name: "no cluster address", file: "[peer]\ncluster_listen = []", want: []string{"peer.cluster_listen", "at least one"}},
		{name: "multiaddr for host:port", args: []string{"--s3-listen=/ip4/127.0.0.1/tcp/9000"}, want: []string{"--s3-listen", "host:port"}, usage: true},
		{name: "port too large", args: []string{"--admin-listen=127.0.0.1:65536"}, want: []string{"--admin-listen"}, usage: true},
		{name: "word", args: []string{"--routing=dht"}, want: []string{"--routing", `"dht" is not one of off, lan, public`}, usage: true},
		{name: "status", env: []string{"HOLDFAST_PINNING_DEFAULT_STATUS=pinned,lost"}, want: []string{"pinning.default_status", "lost"}},
		{name: "name", file: "[node]\nname = \"a\\nb\"", want: []string{"node.name"}},
		{name: "zone", file: "[node]\nzone = \"a\\nb\"", want: []string{"node.zone"}},
		{name: "secret and its file", file: "[cluster]\nsecret = \"canary\"\nsecret_file = \"/f\"", want: []string{"cluster.secret", "not both"}},
		{name: "one port for two", args: []string{"--s3-listen=127.0.0.1:7000", "--pinning-listen=127.0.0.1:7000"}, want: []string{"--s3-listen", "--pinning-listen", "127.0.0.1:7000"}, usage: true},
		{name: "the port of a default", args: []string{"--s3-listen=:9097"}, want: []string{"--s3-listen", "--pinning-listen 127.0.0.1:9097"}, usage: true},
		{name: "one port for an API and the console", args: []string{"--console-listen=127.0.0.1:7000", "--pinning-listen=127.0.0.1:7000"}, want: []string{"--console-listen", "--pinning-listen", "127.0.0.1:7000"}, usage: true},
		{name: "one port for both hosts", args: []string{"--listen=/ip4/0.0.0.0/tcp/7000", "--cluster-listen=/ip4/127.0.0.1/tcp/7000"}, want: []string{"--listen", "--cluster-listen", "tcp/7000"}, usage: true},
		{name: "one port for a host and an API", env: []string{"HOLDFAST_ADMIN_LISTEN=localhost:9096"}, want: []string{"HOLDFAST_ADMIN_LISTEN", "--cluster-listen", "tcp/9096"}},
		{name: "one address twice", args: []string{"--listen=/ip4/0.0.0.0/udp/7000/quic-v1", "--listen=/ip4/0.0.0.0/udp/7000/quic-v1"}, want: []string{"--listen", "udp/7000", "twice"}, usage: true},
		{name: "join without a value", args: []string{"--join="}, want: []string{"--join", "it is empty", "holdfast token"}, usage: true},
		{name: "one of two places to join at is empty", args: []string{"--join=canary", "--join="}, want: []string{"--join", "it is empty"}, usage: true},
		{name: "no secret", env: []string{"HOLDFAST_SECRET=canary"}, want: []string{"HOLDFAST_SECRET", "16 or more bytes in hexadecimal"}},
		{name: "a short secret", file: "[cluster]\nsecret = \"0011\"", want: []string{"cluster.secret", FileName, "16 or more bytes in hexadecimal"}},
		{
			name: "all at once", file: "[log]\nlevel = \"loud\"\ncolour = true",
			env: []string{"HOLDFAST_PEER_ROUTING=wan", "HOLDFAST_NOPE=1", "HOLDFAST_TRACKER_ATTEMPTS=some"}, args: []string{"--replication=-1"},
			want: []string{"log.level", "log.colour", "HOLDFAST_PEER_ROUTING", "HOLDFAST_NOPE", "HOLDFAST_TRACKER_ATTEMPTS", "--replication"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(t, tc.file, tc.env, tc.args)
			var refused *Error
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want an *Error", err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not hold %q", err, part)
				}
			}
			if strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q shows a secret or is more than a line", err)
			}
			if refused.Usage() != tc.usage {
				t.Errorf("Usage() = %v for %q", refused.Usage(), err)
			}
		})
	}
}

// Load accepts addresses that one process can listen on together, even if their ports are equal.
func TestPortsThatDoNotOverlapAreTaken(t *testing.T) {
	for _, args := range [][]string{
		{"--s3-listen=127.0.0.1:0", "--pinning-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"},
		{"--s3-listen=127.0.0.1:7000", "--pinning-listen=127.0.0.2:7000"},
		{"--s3-listen=127.0.0.1:7000", "--pinning-listen=[::1]:7000"},
		{"--listen=/ip4/0.0.0.0/tcp/7000", "--listen=/ip4/0.0.0.0/udp/7000/quic-v1", "--listen=/ip6/::/tcp/7000"},
		{"--listen=/ip4/0.0.0.0/udp/7000/quic-v1", "--listen=/ip4/0.0.0.0/udp/7000/quic-v1/webtransport", "--s3-listen=127.0.0.1:7000"},
		{"--listen=/ip6/::/tcp/7000", "--cluster-listen=/ip4/0.0.0.0/tcp/7000"},
		{"--s3-listen=127.0.0.1:9002", "--gateway-listen=127.0.0.1:9002"}, // of a part that is not served
		{"--s3-listen=", "--pinning-listen="},
	} {
		if _, err := load(t, "", nil, args); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// Load ignores the environment variables of the client commands and of the tests, and accepts empty sections.
func TestNamesOfClientsAndTestsAreLeftAlone(t *testing.T) {
	env := []string{
		"HOLDFAST_ENDPOINT=a", "HOLDFAST_TOKEN=b", "HOLDFAST_IDENTITY=c", "HOLDFAST_DATA=d",
		"HOLDFAST_DEMO_PEER=e", "HOLDFAST_BIN=f", "HOLDFAST_TEST_ANYTHING=g", "NOISE",
	}
	if _, err := load(t, "[peer]\n[s3]\n", env, nil); err != nil {
		t.Error(err)
	}
}

// Load ignores exactly the variables that Kubernetes sets for a service named holdfast, and refuses similar names. A
// name that only resembles these forms is a misspelt setting, which stops the start.
func TestNamesThatKubernetesGivesAreLeftAlone(t *testing.T) {
	for name, ignored := range map[string]bool{
		"HOLDFAST_PORT":                     true,
		"HOLDFAST_SERVICE_HOST":             true,
		"HOLDFAST_SERVICE_PORT":             true,
		"HOLDFAST_SERVICE_PORT_S3":          true,
		"HOLDFAST_SERVICE_PORT_PINNING_API": true,
		"HOLDFAST_PORT_9000_TCP":            true,
		"HOLDFAST_PORT_9000_TCP_ADDR":       true,
		"HOLDFAST_PORT_9000_TCP_PORT":       true,
		"HOLDFAST_PORT_9000_TCP_PROTO":      true,
		"HOLDFAST_PORT_4001_UDP":            true,
		"HOLDFAST_PORT_65535_SCTP_ADDR":     true,
		"HOLDFAST_PORTS":                    false,
		"HOLDFAST_PORT_":                    false,
		"HOLDFAST_PORT_TCP":                 false,
		"HOLDFAST_PORT_9000":                false,
		"HOLDFAST_PORT_9000_":               false,
		"HOLDFAST_PORT_0_TCP":               false,
		"HOLDFAST_PORT_09000_TCP":           false,
		"HOLDFAST_PORT_+9000_TCP":           false,
		"HOLDFAST_PORT_65536_TCP":           false,
		"HOLDFAST_PORT_9000_tcp":            false,
		"HOLDFAST_PORT_9000_QUIC":           false,
		"HOLDFAST_PORT_9000_TCP_":           false,
		"HOLDFAST_PORT_9000_TCP_HOST":       false,
		"HOLDFAST_PORT_9000_TCP_ADDR_X":     false,
		"HOLDFAST_SERVICE":                  false,
		"HOLDFAST_SERVICE_HOSTS":            false,
		"HOLDFAST_SERVICE_HOST_X":           false,
		"HOLDFAST_SERVICE_PORT_":            false,
		"HOLDFAST_SERVICE_PORT_s3":          false,
		"HOLDFAST_SERVICE_PORTS":            false,
		"HOLDFAST_S3_PORT":                  false,
		"HOLDFAST_S3_PORT_9000_TCP":         false,
		"HOLDFAST_S3_SERVICE_HOST":          false,
		"HOLDFAST_PINING_LISTEN":            false,
	} {
		_, err := load(t, "", []string{name + "=tcp://10.96.0.7:9000"}, nil)
		if ignored && err != nil {
			t.Errorf("%s: %v, want it ignored", name, err)
		}
		if !ignored && (err == nil || !strings.Contains(err.Error(), name)) {
			t.Errorf("%s: %v, want a refusal that names it", name, err)
		}
	}
}

// Load ignores the variables that Kubernetes sets for a service named holdfast-NAME. The host and the port of that
// service must be there. These names begin like settings. Settings still count beside them, and Load still refuses
// misspelt settings.
func TestNamesOfOtherServicesAreLeftAlone(t *testing.T) {
	about := func(service string) []string {
		p := "HOLDFAST_" + service + "_"
		return []string{
			p + "SERVICE_HOST=10.96.0.7", p + "SERVICE_PORT=9000", p + "SERVICE_PORT_HTTP=9000", p + "PORT=tcp://10.96.0.7:9000",
			p + "PORT_9000_TCP=tcp://10.96.0.7:9000", p + "PORT_9000_TCP_PROTO=tcp", p + "PORT_9000_TCP_PORT=9000", p + "PORT_9000_TCP_ADDR=10.96.0.7",
		}
	}
	for _, service := range []string{"S3", "PINNING", "API_INTERNAL", "S3_S3", "X"} {
		if _, err := load(t, "", append(about(service), "HOLDFAST_S3_REGION=eu"), nil); err != nil {
			t.Errorf("%s: %v", service, err)
		}
		for _, wrong := range []string{"HOLDFAST_" + service + "_PORTS=1", "HOLDFAST_" + service + "_LISTN=x", "HOLDFAST_OTHER_PORT=tcp://10.96.0.7:9000"} {
			name, _, _ := strings.Cut(wrong, "=")
			if _, err := load(t, "", append(about(service), wrong), nil); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s beside %s: %v, want a refusal that names it", wrong, service, err)
			}
		}
		for i := range about(service)[:2] {
			if _, err := load(t, "", slices.Delete(about(service), i, i+1), nil); err == nil {
				t.Errorf("%s is taken for a service without %s", service, about(service)[i])
			}
		}
	}
}

// Load refuses a settings file that is larger than maxFile, and names the file.
func TestSettingsFileIsBounded(t *testing.T) {
	if _, err := load(t, "#"+strings.Repeat("x", maxFile), nil, nil); err == nil || !strings.Contains(err.Error(), FileName) {
		t.Errorf("got %v, want a refusal that names %s", err, FileName)
	}
}

// Of a secret and a secret file that are set in two places, GivenSecret takes the one that the stronger place set. An
// empty value counts as not set.
func TestStrongerPlaceDecidesBetweenSecretAndItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	const inFile, inVariable = "00112233445566778899aabbccddeeff", "ffeeddccbbaa998877665544332211000a"
	if err := os.WriteFile(path, []byte(" "+inFile+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, file string
		env, args  []string
		want       string
	}{
		{name: "none"},
		{name: "variable", env: []string{"HOLDFAST_SECRET=" + inVariable + " "}, want: inVariable},
		{name: "flag beats variable", env: []string{"HOLDFAST_SECRET=" + inVariable}, args: []string{"--secret-file", path}, want: inFile},
		{name: "an empty flag is none", env: []string{"HOLDFAST_SECRET=" + inVariable}, args: []string{"--secret-file", ""}, want: inVariable},
		{name: "an empty variable is none", file: "[cluster]\nsecret_file = " + strconv.Quote(path), env: []string{"HOLDFAST_SECRET="}, want: inFile},
		{name: "of two the other", file: "[cluster]\nsecret = \"" + inVariable + "\"", env: []string{"HOLDFAST_SECRET=", "HOLDFAST_CLUSTER_SECRET_FILE="}, want: inVariable},
		{name: "an empty file beside a secret", env: []string{"HOLDFAST_SECRET=" + inVariable, "HOLDFAST_CLUSTER_SECRET_FILE="}, want: inVariable},
		{name: "variable beats file", file: "[cluster]\nsecret_file = \"/none\"", env: []string{"HOLDFAST_SECRET=" + inVariable}, want: inVariable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := load(t, tc.file, tc.env, tc.args)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := c.GivenSecret(); err != nil || hex.EncodeToString(got) != tc.want {
				t.Errorf("got %x, %v, want %s", got, err, tc.want)
			}
		})
	}
}

// JoinFileEntries returns the tickets and addresses of the file. It tells a file that has nothing yet from one that cannot
// be used, and its errors name the file.
func TestTheFileOfPlacesToJoin(t *testing.T) {
	const addr = "/dns4/node1/tcp/9096/p2p/12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"
	for _, tc := range []struct {
		name, text string
		want       []string
		missing    bool
	}{
		{"one ticket", "holdfast1.abc\n", []string{"holdfast1.abc"}, false},
		{"a ticket and an address", "\n holdfast1.abc\r\n" + addr, []string{"holdfast1.abc", addr}, false},
		{"nothing yet", " \n", nil, true},
		{"an address without an id", "/dns4/node1/tcp/9096\n", nil, false},
		{"too large", strings.Repeat("x", 64<<10+1), nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Default()
			c.Cluster.JoinFile = filepath.Join(t.TempDir(), "ticket")
			if _, err := c.JoinFileEntries(); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("without the file: %v", err)
			}
			if err := os.WriteFile(c.Cluster.JoinFile, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := c.JoinFileEntries()
			if !slices.Equal(got, tc.want) || (err == nil) != (tc.want != nil) || errors.Is(err, fs.ErrNotExist) != tc.missing {
				t.Errorf("%q, %v", got, err)
			}
			if err != nil && !strings.Contains(err.Error(), c.Cluster.JoinFile) {
				t.Errorf("%v does not name the file", err)
			}
		})
	}
}

// The error for a bad secret file has its path, the fault, and the flag or variable that named the file. GivenSecret
// returns it. Load does not read the file. The error is a usage error if a flag named the file.
func TestASecretFileIsNamedWithWhatGaveIt(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		name, content string // "": there is no file
		says          string
	}{
		{"nothing", "", "no such file"},
		{"empty", "\n", "hexadecimal"},
		{"no hexadecimal", "zz", "hexadecimal"},
		{"short", strings.Repeat("0a", minSecretBytes-1), "hexadecimal"},
		{"large", strings.Repeat("0a", maxSecretFile), "larger than"},
	} {
		path := filepath.Join(dir, tc.name)
		if tc.content != "" {
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, from := range []struct {
			env, args []string
			name      string
			usage     bool
		}{
			{nil, []string{"--secret-file", path}, "--secret-file", true},
			{[]string{"HOLDFAST_CLUSTER_SECRET_FILE=" + path}, nil, "HOLDFAST_CLUSTER_SECRET_FILE", false},
		} {
			c, err := load(t, "", from.env, from.args)
			if err != nil {
				t.Fatal(err)
			}
			var refused *Error
			if _, err := c.GivenSecret(); !errors.As(err, &refused) || refused.Usage() != from.usage {
				t.Errorf("%s by %s: %v", tc.name, from.name, err)
			} else if text := err.Error(); !strings.Contains(text, from.name) || !strings.Contains(text, path) || !strings.Contains(text, tc.says) {
				t.Errorf("%s by %s: %q", tc.name, from.name, text)
			}
		}
	}
}

// The data folder is that of the flag, else of HOLDFAST_DATA, else a folder in XDG_DATA_HOME or HOME. XDG_DATA_HOME
// must be absolute. Without any of them DataDir returns an error.
func TestDataFolderIsFound(t *testing.T) {
	for _, tc := range []struct {
		name, flag string
		env        []string
		want       string
	}{
		{"flag", "/f", []string{"HOLDFAST_DATA=/e", "XDG_DATA_HOME=/x", "HOME=/h"}, "/f"},
		{"variable", "", []string{"HOLDFAST_DATA=/e", "XDG_DATA_HOME=/x", "HOME=/h"}, "/e"},
		{"data home", "", []string{"XDG_DATA_HOME=/x", "HOME=/h"}, "/x/holdfast"},
		{"relative data home does not count", "", []string{"XDG_DATA_HOME=x", "HOME=/h"}, "/h/.local/share/holdfast"},
		{"home", "", []string{"HOME=/h"}, "/h/.local/share/holdfast"},
		{"nothing", "", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := DataDir(tc.flag, tc.env)
			if got != tc.want || (err != nil) != (tc.want == "") {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

// The settings file that a new data folder gets has the bytes of testdata/config.toml.
func TestTemplateIsGolden(t *testing.T) {
	goldentest.File(t, "testdata/config.toml", Template())
}

// The template loads as the defaults, both with its lines as comments and with its lines uncommented.
func TestTemplateUncommentedIsTheDefaults(t *testing.T) {
	file := regexp.MustCompile(`(?m)^# (\w+ = )`).ReplaceAllString(string(Template()), "$1")
	file = regexp.MustCompile(`(?m)^secret = .*$`).ReplaceAllString(file, "")
	if n := strings.Count(file, "\n#"); n != 2*len(table)+2 {
		t.Errorf("%d lines are still comments, want %d", n, 2*len(table)+2)
	}
	c, err := load(t, file, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Data = c.Data
	if got, want := values(c), values(want); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if c, err = load(t, string(Template()), nil, nil); err != nil || !slices.Equal(values(c), values(want)) {
		t.Errorf("the template as it is: %v, %v", values(c), err)
	}
}

// values returns every setting of c as text.
func values(c Config) []string {
	var all []string
	for _, s := range table {
		all = append(all, s.key+"="+format(s.field(&c)))
	}
	return all
}

// Every field of every section of Config has exactly one setting in the table.
func TestTableReachesEveryFieldOnce(t *testing.T) {
	c := Default()
	reached := map[any]string{}
	for _, s := range table {
		field := s.field(&c)
		if other, twice := reached[field]; twice {
			t.Errorf("%s and %s are one field", s.key, other)
		}
		reached[field] = s.key
	}
	sections := reflect.ValueOf(&c).Elem()
	for i := range sections.NumField() {
		if sections.Field(i).Kind() != reflect.Struct {
			continue // the data folder
		}
		all := sections.Field(i).Type()
		for _, f := range reflect.VisibleFields(all) {
			if f.Anonymous {
				continue // its fields are visible
			}
			if field := sections.Field(i).FieldByIndex(f.Index).Addr().Interface(); reached[field] == "" {
				t.Errorf("%s.%s has no setting", sections.Type().Field(i).Name, f.Name)
			}
		}
	}
}

// An API has its own rates if they are set, else those of the section api, else its defaults. The defaults are no
// limit for S3. The error for a wrong rate names once the setting that was set.
func TestEachAPIHasRatesOfItsOwn(t *testing.T) {
	pinning := Rates{AccountRate: 2000, AccountBurst: 10_000, AddressRate: 10_000, AddressBurst: 50_000}
	s3 := Rates{AccountRate: 0, AccountBurst: 1000, AddressRate: 0, AddressBurst: 5000}
	for _, tc := range []struct {
		name, file  string
		env         []string
		pinning, s3 Rates
	}{
		{name: "nothing is set", pinning: pinning, s3: s3},
		{
			name: "of both", file: "[api]\naccount_rate = 7\naccount_burst = 9\n", env: []string{"HOLDFAST_API_ADDRESS_RATE=0"},
			pinning: Rates{7, 9, 0, 50_000}, s3: Rates{7, 9, 0, 5000},
		},
		{
			name: "of one", file: "[s3]\naccount_rate = 5\n", env: []string{"HOLDFAST_PINNING_ADDRESS_BURST=3"},
			pinning: Rates{2000, 10_000, 10_000, 3}, s3: Rates{5, 1000, 0, 5000},
		},
		{
			name: "its own count, wherever both stand", file: "[s3]\naccount_rate = 0\n", env: []string{"HOLDFAST_API_ACCOUNT_RATE=7", "HOLDFAST_API_ADDRESS_BURST=-1"},
			pinning: Rates{7, 10_000, 10_000, 50_000}, s3: s3,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := load(t, tc.file, tc.env, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.Pinning.Rates != tc.pinning || c.S3.Rates != tc.s3 {
				t.Errorf("pinning %+v and s3 %+v, want %+v and %+v", c.Pinning.Rates, c.S3.Rates, tc.pinning, tc.s3)
			}
		})
	}
	for _, wrong := range []string{"HOLDFAST_API_ACCOUNT_RATE=-2", "HOLDFAST_API_ACCOUNT_BURST=0", "HOLDFAST_S3_ACCOUNT_RATE=-1", "HOLDFAST_PINNING_ADDRESS_BURST=0"} {
		_, err := load(t, "", []string{wrong}, nil)
		if err == nil {
			t.Errorf("%s was taken", wrong)
			continue
		}
		// Of a rate that all APIs inherit, too, it names the setting that was set, and no other.
		name, _, _ := strings.Cut(wrong, "=")
		if told := strings.Count(err.Error(), "is not between"); told != 1 || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// A logged Config shows neither the cluster secret nor a ticket of cluster.join, and is not changed by that.
func TestSecretsAreNotLogged(t *testing.T) {
	c := Default()
	c.Cluster.Secret = "canary1"
	c.Cluster.Join = []string{"canary2", "/ip4/10.0.0.1/tcp/9096/p2p/x"}
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("settings", "settings", c)
	if strings.Contains(out.String(), "canary") || !strings.Contains(out.String(), "/ip4/10.0.0.1/tcp/9096/p2p/x") ||
		!strings.Contains(out.String(), `"repair.after":"\"10m\""`) {
		t.Error(out.String())
	}
	if c.Cluster.Join[0] != "canary2" {
		t.Error("Redacted changed what it was given")
	}
}

// DefaultStatuses returns the statuses that pinning.default_status lists, and all statuses for "all".
func TestDefaultStatuses(t *testing.T) {
	for text, want := range map[string][]string{
		"all": pinStatuses, "pinned": {"pinned"}, "queued,failed": {"queued", "failed"},
	} {
		if got := (Pinning{DefaultStatus: text}).DefaultStatuses(); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

// ProxyPrefixes returns an address as a prefix of full length, and mapped IPv4 prefixes as IPv4. A network has no
// host bits. IPv4 clients are known by their IPv4 addresses.
func TestProxyPrefixes(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.9": "192.0.2.9/32", "10.1.2.3/8": "10.0.0.0/8", "fe80::1/10": "fe80::/10", "2001:db8::1": "2001:db8::1/128",
		// IPv4 clients are known by their IPv4 addresses.
		"::ffff:192.0.2.9": "192.0.2.9/32", "::ffff:10.1.0.0/104": "10.0.0.0/8", "::ffff:0:0/96": "0.0.0.0/0", "::/0": "::/0",
	} {
		if got := (API{TrustedProxies: []string{text}}).ProxyPrefixes(); len(got) != 1 || got[0].String() != want {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
}

// Validate accepts the defaults, and its error names the key of each bad value that code has set.
func TestValidateNamesTheKeyOfAValueSetInCode(t *testing.T) {
	c := Default()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	c.Log.Format, c.Tracker.Attempts = "xml", 0
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "log.format") || !strings.Contains(err.Error(), "tracker.attempts") {
		t.Errorf("got %v", err)
	}
}

func FuzzSettingsFile(f *testing.F) {
	f.Add(Template())
	f.Add([]byte("[peer]\nlisten = [\"/ip4/0.0.0.0/tcp/1\"]\n[cluster]\nreplication = 2\n"))
	f.Add([]byte("a.b.c = [{x = 1979-05-27}]\n[storage]\ncache = 1e3\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, found := parseFile("config.toml", raw)
		c := Default()
		for _, s := range table {
			if store, ok := l.values[s.key]; ok && store(s.field(&c)) != nil {
				return
			}
		}
		if len(found) > 0 || c.Validate() != nil {
			return
		}
		// What is accepted survives being written and read again as text.
		for _, s := range table {
			again := Default()
			switch s.field(&c).(type) {
			case *string, *[]string, *[]OpenID:
				continue
			}
			text := strings.Trim(format(s.field(&c)), `"`)
			if err := fromText(s.field(&again), text); err != nil || format(s.field(&again)) != format(s.field(&c)) {
				t.Errorf("%s: %s came back as %s, %v", s.key, text, format(s.field(&again)), err)
			}
		}
	})
}

// ParseSize reads binary and decimal units, and refuses other text with an error that shows examples. It reads back
// what String writes.
func TestSizesAreReadAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "1048576": 1 << 20, "12B": 12, "10GiB": 10 << 30, "10 GiB": 10 << 30, "10gib": 10 << 30, " 3KiB ": 3 << 10, "2TiB": 2 << 40,
		"500MB": 500e6, "1kB": 1000, "1KB": 1000, "2GB": 2e9, "2TB": 2e12, "9223372036854775807": 1<<63 - 1,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
		if want > 0 {
			if got, err := ParseSize(want.String()); err != nil || got != want {
				t.Errorf("%s is read as %d, %v", want, got, err)
			}
		}
	}
	for _, text := range []string{"", "B", "MiB", "-1", "+1", "1.5GiB", "10G", "10Gi", "ten MB", "1 0MB", "9223372036854775808", "8388608TiB", "0x10", "5 bytes"} {
		if got, err := ParseSize(text); err == nil || !strings.Contains(err.Error(), "10GiB, 500MB") {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
}

// The names of the IPFS gateway are host names without ports, and each wrong one is named.
func TestHostsOfTheGatewayAreNames(t *testing.T) {
	c, err := load(t, "[gateway]\nhosts = [\"dweb.example.org\", \"localhost\"]\naddress_rate = 7\n", nil, []string{"--gateway-listen", "127.0.0.1:0"})
	if err != nil || len(c.Gateway.Hosts) != 2 || c.Gateway.Listen != "127.0.0.1:0" || c.Gateway.AddressRate != 7 || c.Gateway.AddressBurst != 2000 {
		t.Errorf("%+v, %v", c.Gateway, err)
	}
	for _, wrong := range []string{"127.0.0.1", "::1", "Dweb.example.org", "dweb.example.org:8080", "https://dweb.example.org", "*.example.org", ".example.org", "a..b", "example.org."} {
		if _, err := load(t, "", []string{"HOLDFAST_GATEWAY_HOSTS=dweb.example.org," + wrong}, nil); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// The addresses at which members reach a node have an IP address or a DNS name and a TCP port, and nothing after it.
func TestAddressesForMembersCanBeDialled(t *testing.T) {
	good := []string{"/dns4/node1/tcp/9096", "/dns/node1.example.org/tcp/1", "/dns6/n/tcp/9096", "/ip4/203.0.113.7/tcp/9096", "/ip6/2001:db8::1/tcp/9096"}
	c, err := load(t, "", []string{"HOLDFAST_PEER_CLUSTER_ANNOUNCE=" + strings.Join(good, ",")}, nil)
	if err != nil || !slices.Equal(c.Peer.ClusterAnnounce, good) {
		t.Errorf("%q, %v", c.Peer.ClusterAnnounce, err)
	}
	for _, wrong := range []string{
		"node1:9096", "/dns4/node1", "/tcp/9096", "/dns4/node1/udp/9096/quic-v1", "/dns4/node1/tcp/9096/ws", "/dnsaddr/node1/tcp/9096", "/unix/x",
		"/dns4/node1/tcp/9096/p2p/12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA",
	} {
		if _, err := load(t, "", []string{"HOLDFAST_PEER_CLUSTER_ANNOUNCE=" + good[0] + "," + wrong}, nil); err == nil || !strings.Contains(err.Error(), "peer.cluster_announce") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
