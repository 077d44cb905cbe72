package arch

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// No source file of the repository breaks a rule of this package.
func TestRepositoryKeepsTheRules(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(sources, func(s Source) bool { return s.Path == "config/config.go" }) {
		t.Fatalf("%d files below %s, but not config/config.go: this is not the repository", len(sources), root)
	}
	broken, err := Check(sources)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range broken {
		t.Error(v)
	}
}

// good returns a file with a package comment that keeps the rules.
func good(pkg, rest string) string {
	return fmt.Sprintf("// Package %[1]s is a sample.\n//\n// Imports: std.\n// Never: more.\npackage %[1]s\n%s", pkg, rest)
}

func imports(pkg string, paths ...string) string {
	var b strings.Builder
	for _, p := range paths {
		fmt.Fprintf(&b, "import _ %q\n", p)
	}
	return good(pkg, b.String())
}

// rule is one sample: what the files say and which rules must object, each with
// its line. No want means that nothing may object.
type rule struct {
	name  string
	files map[string]string
	want  []string // "path:line: rule"
}

// Each rule of imports refuses a bad sample at the right line, and accepts a good one.
func TestEachRuleObjectsToABadSample(t *testing.T) {
	ours := func(p string) string { return Module + "/" + p }
	check(t, []rule{
		{"package without a row", map[string]string{"misc/misc.go": good("misc", "")}, []string{"misc/misc.go:5: row"}},
		{"code at the root", map[string]string{"x.go": good("x", "")}, []string{"x.go:5: row"}},
		{"island to island", map[string]string{"consensus/c.go": imports("consensus", ours("peer"))}, []string{"consensus/c.go:6: import"}},
		{"island to its own part", map[string]string{"consensus/c.go": imports("consensus", ours("consensus/state"))}, nil},
		{"storage to config", map[string]string{"storage/kv/k.go": imports("kv", ours("config"))}, []string{"storage/kv/k.go:6: import"}},
		{"use case to island", map[string]string{"cluster/pins/p.go": imports("pins", ours("consensus"))}, []string{"cluster/pins/p.go:6: import"}},
		{"use case to state", map[string]string{"cluster/pins/p.go": imports("pins", ours("consensus/state"))}, nil},
		{"node to api", map[string]string{"cluster/node/n.go": imports("node", ours("api"))}, []string{"cluster/node/n.go:6: import"}},
		{"surface to surface", map[string]string{"api/pinning/p.go": imports("pinning", ours("api/s3"))}, []string{"api/pinning/p.go:6: import"}},
		{"cmd to island", map[string]string{"cmd/holdfast/m.go": imports("main", ours("storage/kv"))}, []string{"cmd/holdfast/m.go:6: import"}},
		{"test to cmd", map[string]string{"test/x/x.go": imports("x", ours("cmd/holdfast"))}, []string{"test/x/x.go:6: import"}},
		{"test to all else", map[string]string{"test/x/x.go": imports("x", ours("cluster/node"), ours("storage/kv"))}, nil},
		{"internal to ours", map[string]string{"internal/x/x.go": imports("x", ours("config"))}, []string{"internal/x/x.go:6: import"}},
		{"anybody to internal", map[string]string{"config/c.go": imports("config", ours("internal/backoff")), "cmd/holdfast/m.go": imports("main", ours("internal/backoff"))}, nil},
		{"state to internal", map[string]string{"consensus/state/s.go": imports("state", ours("internal/backoff"))}, []string{"consensus/state/s.go:6: import"}},
		{"a test looks sideways", map[string]string{"cluster/pins/p_test.go": imports("pins", ours("storage/kv"))}, nil},
		{"a test looks up", map[string]string{"storage/kv/k_test.go": imports("kv", ours("cluster/node"))}, []string{"storage/kv/k_test.go:6: import"}},
		{"product to test package", map[string]string{"peer/p.go": imports("peer", ours("peer/peertest"))}, []string{"peer/p.go:6: import"}},
		{"behind a build tag", map[string]string{"config/c.go": "//go:build never\n\n" + imports("config", ours("peer"))}, []string{"config/c.go:8: import"}},
		{"libp2p outside peer", map[string]string{"peer/dag/d.go": imports("dag", "github.com/libp2p/go-libp2p/core/peer")}, []string{"peer/dag/d.go:6: fence"}},
		{"libp2p in peer", map[string]string{"peer/p.go": imports("peer", "github.com/libp2p/go-libp2p")}, nil},
		{"raft outside consensus", map[string]string{"cluster/node/n.go": imports("node", "github.com/hashicorp/raft")}, []string{"cluster/node/n.go:6: fence"}},
		{"log store in consensus", map[string]string{"consensus/c.go": imports("consensus", "github.com/hashicorp/raft-boltdb/v2")}, []string{"consensus/c.go:6: fence"}},
		{"autopilot in consensus", map[string]string{"consensus/c.go": imports("consensus", "github.com/hashicorp/raft-autopilot")}, nil},
		{"boxo outside", map[string]string{"api/pinning/p.go": imports("pinning", "github.com/ipfs/boxo/path")}, []string{"api/pinning/p.go:6: fence"}},
		{"a cache by hand", map[string]string{"storage/blocks/b.go": imports("blocks", "container/list")}, []string{"storage/blocks/b.go:6: fence"}},
		{"XML outside s3", map[string]string{"api/paid/p.go": imports("paid", "encoding/xml")}, []string{"api/paid/p.go:6: fence"}},
		{"a foreign client in the product", map[string]string{"api/s3/sigv4/s.go": imports("sigv4", "github.com/aws/aws-sdk-go-v2/aws")}, []string{"api/s3/sigv4/s.go:6: fence"}},
		{"testing in the product", map[string]string{"config/c.go": imports("config", "testing")}, []string{"config/c.go:6: fence"}},
		{"old log", map[string]string{"config/c.go": imports("config", "log", "log/slog")}, []string{"config/c.go:6: fence"}},
		{"testify", map[string]string{"config/c_test.go": imports("config", "github.com/stretchr/testify/assert")}, []string{"config/c_test.go:6: fence"}},
	})
}

// Each rule of the text refuses a bad sample at the right line, and accepts a good one.
func TestEachRuleOfTheTextObjectsToABadSample(t *testing.T) {
	long := strings.Repeat("\n", linesOfFunction)
	check(t, []rule{
		{"sleep", map[string]string{"config/c.go": good("config", "import clock \"time\"\nfunc f() { clock.Sleep(1) }")}, []string{"config/c.go:7: sleep"}},
		{"sleep in a test", map[string]string{"config/c_test.go": good("config", "import \"time\"\nvar f = time.Sleep")}, []string{"config/c_test.go:7: sleep"}},
		{"sleep of something else", map[string]string{"config/c.go": good("config", "import \"time\"\nvar _ = time.Second\nfunc f(time interface{ Sleep() }) { time.Sleep() }")}, nil},
		{"init", map[string]string{"config/c.go": good("config", "func init() {}")}, []string{"config/c.go:6: init"}},
		{"a method called init", map[string]string{"config/c.go": good("config", "type a int\nfunc (a) init() {}")}, nil},
		{"long function", map[string]string{"config/c.go": good("config", "func f() {"+long+"}")}, []string{"config/c.go:6: function-size"}},
		{"long file", map[string]string{"config/c.go": good("config", strings.Repeat("//\n", linesOfFile))}, []string{"config/c.go:5: file-size"}},
		{"leftover", map[string]string{"config/c.go": good("config", "// TODO: more\nvar _ = 1")}, []string{"config/c.go:6: leftover"}},
		{"context without an owner", map[string]string{"config/c.go": good("config", "import \"context\"\nfunc f() { _ = context.TODO() }")}, []string{"config/c.go:7: leftover"}},
		{"environment", map[string]string{"config/c.go": good("config", "import \"os\"\nfunc f() { os.Getenv(\"A\") }")}, []string{"config/c.go:7: environment"}},
		{"environment handed in", map[string]string{"cmd/holdfast/m.go": good("main", "import \"os\"\nfunc f() { os.Environ() }")}, nil},
		{"global logger", map[string]string{"config/c.go": good("config", "import \"log/slog\"\nfunc f() { slog.Info(\"x\") }")}, []string{"config/c.go:7: logger"}},
		{"injected logger", map[string]string{"config/c.go": good("config", "import \"log/slog\"\nfunc f(l *slog.Logger) { l.Info(\"x\") }")}, nil},
		{"no comment", map[string]string{"config/c.go": "package config"}, []string{"config/c.go:1: doc"}},
		{"half a comment", map[string]string{"config/c.go": "// Package config is.\npackage config"}, []string{"config/c.go:2: doc"}},
		{"a pause is doubled", map[string]string{"config/c.go": good("config", "func f(pause int) { pause *= 2 }")}, []string{"config/c.go:6: pause"}},
		{"up to a bound", map[string]string{"config/c.go": good("config", "func f(s struct{ wait int }) { s.wait = min(2*s.wait, 9) }")}, []string{"config/c.go:6: pause"}},
		{"in a loop", map[string]string{"config/c.go": good("config", "func f() { for backoff := 1; ; backoff = min(backoff*2, 9) {} }")}, []string{"config/c.go:6: pause"}},
		{"a window is doubled", map[string]string{"config/c.go": good("config", "func f(window int) { window = min(2*window, 9) }")}, nil},
		{"clock in state", map[string]string{"consensus/state/s.go": good("state", "import \"time\"\nfunc f() { time.Now() }")}, []string{"consensus/state/s.go:7: pure"}},
		{"time as a type in state", map[string]string{"consensus/state/s.go": good("state", "import \"time\"\nfunc f(time.Time) {}")}, nil},
		{"randomness in state", map[string]string{"consensus/state/s.go": imports("state", "math/rand/v2")}, []string{"consensus/state/s.go:6: pure"}},
		{"network in state", map[string]string{"consensus/state/s.go": imports("state", "net/netip")}, []string{"consensus/state/s.go:6: pure"}},
		{"logging in state", map[string]string{"consensus/state/s.go": imports("state", "log/slog")}, []string{"consensus/state/s.go:6: pure"}},
		{"library in state", map[string]string{"consensus/state/s.go": imports("state", "github.com/ipfs/go-cid", "github.com/google/uuid")}, []string{"consensus/state/s.go:7: pure"}},
		{"goroutine in state", map[string]string{"consensus/state/s.go": good("state", "func f() { go f() }")}, []string{"consensus/state/s.go:6: pure"}},
		{"a test of state is free", map[string]string{"consensus/state/s_test.go": good("state", "import \"time\"\nfunc f() { go time.Now() }")}, nil},
	})
}

// The rule of promises refuses a black-box test whose comment does not begin with its name and go on.
func TestATestWithoutAPromiseIsRefused(t *testing.T) {
	test := func(doc string) map[string]string {
		return map[string]string{"test/smoke/s_test.go": "package smoke\n\n" + doc + "func TestX(t *testing.T) {}\n"}
	}
	check(t, []rule{
		{"no comment", test(""), []string{"test/smoke/s_test.go:3: promise"}},
		{"an empty line between", test("// TestX promises.\n\n"), []string{"test/smoke/s_test.go:5: promise"}},
		{"a directive alone", test("//nolint:all\n"), []string{"test/smoke/s_test.go:4: promise"}},
		{"another name", test("// It promises.\n"), []string{"test/smoke/s_test.go:4: promise"}},
		{"the name alone", test("// TestX\n"), []string{"test/smoke/s_test.go:4: promise"}},
		{"a promise", test("// TestX promises.\n"), nil},
		{"a promise with a colon", test("// TestX: all is well.\n"), nil},
		{"a main function", map[string]string{"test/smoke/s_test.go": "package smoke\n\nfunc TestMain(m *testing.M) {}\n"}, nil},
		{"no comment in another package", map[string]string{"config/c_test.go": "package config\n\nfunc TestX(t *testing.T) {}\n"}, []string{"config/c_test.go:3: promise"}},
		{"a promise in another package", map[string]string{"config/c_test.go": "package config\n\n// All is well.\nfunc TestX(t *testing.T) {}\n"}, nil},
	})
}

// The rule of state refuses package variables that can change, and accepts those that cannot.
func TestPackageStateIsRefused(t *testing.T) {
	check(t, []rule{
		{"no value", map[string]string{"config/c.go": good("config", "var count int")}, []string{"config/c.go:6: state"}},
		{"lock", map[string]string{"config/c.go": good("config", "import \"sync\"\nvar mu = sync.Mutex{}")}, []string{"config/c.go:7: state"}},
		{"pointer", map[string]string{"config/c.go": good("config", "type a struct{}\nvar one = &a{}")}, []string{"config/c.go:7: state"}},
		{"map to fill", map[string]string{"config/c.go": good("config", "var m = make(map[int]int)")}, []string{"config/c.go:6: state"}},
		{"constructor", map[string]string{"config/c.go": good("config", "func newCache() int { return 1 }\nvar m = newCache()")}, []string{"config/c.go:7: state"}},
		{"someone's constructor", map[string]string{"config/c.go": good("config", "import \"x/prometheus\"\nvar c = prometheus.Counter(1)")}, []string{"config/c.go:7: state"}},
		{"computed key", map[string]string{"config/c.go": good("config", "func key(string) []byte { return nil }\nvar k = key(\"a\")")}, nil},
		{"assigned", map[string]string{"config/c.go": good("config", "var n = 1\nfunc f() { n = 2 }")}, []string{"config/c.go:7: state"}},
		{"counted", map[string]string{"config/c.go": good("config", "var n = 1\nfunc f() { n++ }")}, []string{"config/c.go:7: state"}},
		{"entry assigned", map[string]string{"config/c.go": good("config", "var m = map[int]int{}\nfunc f() { m[1] = 2 }")}, []string{"config/c.go:7: state"}},
		{"entry deleted", map[string]string{"config/c.go": good("config", "var m = map[int]int{}\nfunc f() { delete(m, 1) }")}, []string{"config/c.go:7: state"}},
		{"address taken", map[string]string{"config/c.go": good("config", "var m = [2]int{}\nfunc f() *int { return &m[0] }")}, []string{"config/c.go:7: state"}},
		{"assigned in another file", map[string]string{
			"config/c.go": good("config", "var n = 1"),
			"config/d.go": "package config\nfunc f() { n = 2 }",
		}, []string{"config/d.go:2: state"}},
		{"assigned in a test", map[string]string{
			"config/c.go":      good("config", "var n = 1"),
			"config/c_test.go": "package config\nfunc f() { n = 2 }",
		}, []string{"config/c_test.go:2: state"}},
		{"what cannot change", map[string]string{"config/c.go": good("config", `import ("embed"; "errors"; "regexp")
type e struct{}
var ErrGone = errors.New("gone")
var ErrOther error = &e{}
var _ error = (*e)(nil)
//go:embed x
var files embed.FS
var word = regexp.MustCompile("x")
var names = map[string]int{"a": 1}
var raw = []byte("x")
func f() int { names := map[string]int{}; names["a"] = 2; return names["a"] }`)}, nil},
		{"a flag of tests", map[string]string{"internal/xtest/x.go": good("xtest", "import \"flag\"\nvar update = flag.Bool(\"update\", false, \"\")")}, nil},
		{"a flag of the product", map[string]string{"internal/x/x.go": good("x", "import \"flag\"\nvar update = flag.Bool(\"update\", false, \"\")")}, []string{"internal/x/x.go:7: state"}},
		{"a harness builds once", map[string]string{"test/x/x.go": good("x", "import \"sync\"\nvar once sync.Once")}, nil},
	})
}

// check runs samples and compares which rules objected where.
func check(t *testing.T, samples []rule) {
	t.Helper()
	for _, sample := range samples {
		t.Run(sample.name, func(t *testing.T) {
			var sources []Source
			for path, text := range sample.files {
				sources = append(sources, Source{Path: path, Text: []byte(text)})
			}
			slices.SortFunc(sources, func(a, b Source) int { return strings.Compare(a.Path, b.Path) })
			broken, err := Check(sources)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range broken {
				got = append(got, fmt.Sprintf("%s:%d: %s", v.Path, v.Line, v.Rule))
			}
			if !slices.Equal(got, sample.want) {
				t.Errorf("got  %q\nwant %q\n%v", got, sample.want, broken)
			}
		})
	}
}

// Check returns an error for a file that is not Go.
func TestTextThatIsNoGoIsAnError(t *testing.T) {
	if _, err := Check([]Source{{Path: "x.go", Text: []byte("packag")}}); err == nil {
		t.Error("a file that is no Go was accepted")
	}
}
