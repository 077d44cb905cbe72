//go:build conformance

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/boxo/pinning/remote/client"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multiaddr"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestBoxoClient promises that every operation of the public Go client works through a node that does not lead.
func TestBoxoClient(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Env: someFetch})
	source := harness.StartBoxo(t)
	node := c.Followers()[0]
	pins := go_pinning_service_http_client.NewClient(node.URL(), c.Leader().UserKey("boxo@example.org").Token)
	apis := go_pinning_service_http_client.PinOpts
	var origins []multiaddr.Multiaddr
	for _, a := range source.Addrs {
		origins = append(origins, multiaddr.StringCast(a))
	}
	all := apis.FilterStatus(go_pinning_service_http_client.StatusQueued, go_pinning_service_http_client.StatusPinning, go_pinning_service_http_client.StatusPinned, go_pinning_service_http_client.StatusFailed)
	var last string
	for i, f := range source.AddRandom(12, 20_000) {
		st, err := pins.Add(t.Context(), cid.MustParse(f.CID), apis.WithName(f.SHA256), apis.WithOrigins(origins...), apis.AddMeta(map[string]string{"i": string(rune('a' + i))}))
		if err != nil {
			t.Fatal(err)
		}
		if st.GetStatus() != go_pinning_service_http_client.StatusQueued || len(st.GetDelegates()) == 0 || st.GetPin().GetName() != f.SHA256 {
			t.Fatalf("add: %s", st)
		}
		last = st.GetRequestId()
	}
	harness.Eventually(t, pinnedWithin, "twelve are pinned by the specified default", func() (bool, error) {
		got, err := pins.LsSync(t.Context())
		return len(got) == 12, err
	})
	page, count, err := pins.LsBatchSync(t.Context(), all, apis.Limit(5))
	if err != nil || len(page) != 5 || count != 12 {
		t.Fatalf("ls batch: %d of %d: %v", len(page), count, err)
	}
	// Not by meta: this client sends Go's notation of a map instead of JSON.
	got, err := pins.LsSync(t.Context(), all, apis.FilterCIDs(page[0].GetPin().GetCid()))
	if err != nil || len(got) != 1 {
		t.Fatalf("ls by CID: %d: %v", len(got), err)
	}
	if got, err = pins.LsSync(t.Context(), all, apis.FilterBefore(page[4].GetCreated())); err != nil || len(got) != 7 {
		t.Fatalf("ls before: %d: %v", len(got), err)
	}
	st, err := pins.GetStatusByID(t.Context(), last)
	if err != nil || st.GetInfo()["dag_size"] == "" {
		t.Fatalf("get: %v %v", st, err)
	}
	now, err := pins.Replace(t.Context(), last, nowhere(), apis.WithName("replaced"))
	if err != nil || now.GetRequestId() == last {
		t.Fatalf("replace: %v %v", now, err)
	}
	if _, err := pins.GetStatusByID(t.Context(), last); err == nil {
		t.Fatal("the replaced pin is still there")
	}
	if err := pins.DeleteByID(t.Context(), now.GetRequestId()); err != nil {
		t.Fatal(err)
	}
	if _, count, err := pins.LsBatchSync(t.Context(), all); err != nil || count != 11 {
		t.Fatalf("%d pins are left: %v", count, err)
	}
}

// clientTimeout bounds the JavaScript clients, which take some seconds.
const clientTimeout = 2 * time.Minute

// TestStockClients promises that each public client lists every pin of 2,500 that was there when it began, and none
// twice, while more are added. The JavaScript clients add, list, replace and delete as well; TestBoxoClient has that
// of the Go client.
func TestStockClients(t *testing.T) {
	t.Parallel() // it mostly waits
	// Not shortFetch: Helia may take longer than that to offer its block.
	c := harness.Start(t, harness.Options{})
	node := c.Followers()[0]
	source := harness.StartBoxo(t)
	s := newService(t, c, "paged@example.org")
	pin := harness.Pin{CID: source.AddRandom(1, 1000)[0].CID, Origins: source.Addrs}
	s.pinned(s.post(pin).RequestID)
	named := pin
	named.Name = "paged "
	before := createMany(s, named, pagedPins)
	created := map[string]string{} // by name
	for _, p := range s.all() {
		if p.Pin.Name != "" {
			created[p.Pin.Name] = p.Created
		}
	}
	adding, stop := context.WithCancel(t.Context())
	added := make(chan error, 1)
	go func() { added <- keepAdding(adding, s.next(), pin) }()
	t.Run("boxo", func(t *testing.T) {
		pins := go_pinning_service_http_client.NewClient(node.URL(), s.token)
		opts := go_pinning_service_http_client.PinOpts
		got, err := pins.LsSync(t.Context(), opts.Limit(1000), opts.FilterStatus(
			go_pinning_service_http_client.StatusQueued, go_pinning_service_http_client.StatusPinning,
			go_pinning_service_http_client.StatusPinned, go_pinning_service_http_client.StatusFailed))
		if err != nil {
			t.Fatal(err)
		}
		seen := make([]string, len(got))
		for i, p := range got {
			seen[i] = p.GetRequestId()
		}
		wantOnce(t, seen, before)
	})
	t.Run("JavaScript", func(t *testing.T) {
		modules, script := harness.Script(t, jsDir, "clients.mjs")
		order, err := json.Marshal(map[string]any{
			"base": node.URL(), "token": c.Leader().UserKey("js@example.org").Token, "paged": s.token, "at_least": pagedPins, "cid": pin.CID,
			"created": created,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), clientTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, harness.NodeProgram(modules, harness.NodeCurrent), script, string(order))
		cmd.Dir = modules
		var logs strings.Builder
		cmd.Stderr = &logs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, logs.String())
		}
		var walked struct {
			Seen     []string `json:"seen"`
			Repeated int      `json:"repeated"`
			Requests int      `json:"requests"`
			Helia    []string `json:"helia"` // names
		}
		if err := json.Unmarshal(out, &walked); err != nil || walked.Repeated != 0 || walked.Requests < 3 {
			t.Errorf("%d came twice in %d requests: %v", walked.Repeated, walked.Requests, err)
		}
		wantOnce(t, walked.Seen, before)
		names := map[string]bool{}
		for name := range created {
			names[name] = true
		}
		wantOnce(t, walked.Helia, names)
	})
	stop()
	if err := <-added; err != nil {
		t.Error(err)
	}
}

// keepAdding creates pins one after the other until ctx ends, at least one.
func keepAdding(ctx context.Context, client *harness.PinsClient, pin harness.Pin) error {
	for {
		if _, err := client.Post(context.WithoutCancel(ctx), pin); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// wantOnce wants all of ids in seen, and nothing there twice.
func wantOnce(t *testing.T, seen []string, ids map[string]bool) {
	t.Helper()
	all := map[string]bool{}
	for _, id := range seen {
		if all[id] {
			t.Errorf("%s came twice", id)
		}
		all[id] = true
	}
	lost := 0
	for id := range ids {
		if !all[id] {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d pins are lost", lost, len(ids))
	}
}

// TestImport promises that an import takes over the pins of another service's account and those of a list of kubo's,
// and that a second import finds everything here.
func TestImport(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Env: someFetch})
	source := harness.StartBoxo(t)
	s := newService(t, c, "before@example.org")
	node := c.Followers()[0]
	node.UserKey("after@example.org")
	var list strings.Builder
	for i, f := range source.AddRandom(25, 1000) {
		name := "file " + strconv.Itoa(i)
		st := s.post(harness.Pin{CID: f.CID, Name: name, Origins: source.Addrs, Meta: map[string]string{"i": strconv.Itoa(i)}})
		s.pinned(st.RequestID)
		fmt.Fprintf(&list, "%s recursive %s\n", f.CID, name)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(s.token), 0o600); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&list, "%s recursive only there\n", nowhere())
	for _, tc := range []struct {
		args, stdin, want string
	}{
		{"--from " + c.Leader().URL() + " --token-file " + token, "", "25 imported, 0 already here, 0 skipped, 0 failed\n"},
		{"--from " + c.Leader().URL() + " --token-file " + token, "", "0 imported, 25 already here, 0 skipped, 0 failed\n"},
		{"-", list.String(), "1 imported, 25 already here, 0 skipped, 0 failed\n"},
	} {
		args := append([]string{"pin", "import", "--user", "after@example.org"}, strings.Fields(tc.args)...)
		if r := node.TryCLI(tc.stdin, args...); r.Code != 0 || r.Stdout != tc.want {
			t.Fatalf("%s: exit code %d\n%s%s", tc.args, r.Code, r.Stdout, r.Stderr)
		}
	}
	client := c.Leader().Pins(node.Key("after@example.org").Token)
	all, err := client.ListAll(t.Context(), nil, 100)
	if err != nil || len(all) != 26 {
		t.Fatalf("%d pins: %v", len(all), err)
	}
	for _, p := range all[1:] {
		if p.Pin.Name != "file "+p.Pin.Meta["i"] || len(p.Pin.Origins) < len(source.Addrs) {
			t.Errorf("%+v", p.Pin)
		}
	}
	r := node.TryCLI("not a CID\n", "pin", "import")
	if r.Code != 1 || !strings.Contains(r.Stderr, "not a line of ipfs pin ls") || r.Stdout != "0 imported, 0 already here, 0 skipped, 1 failed\n" {
		t.Errorf("what cannot be imported: %+v", r)
	}
}

// suiteTimeout bounds one run of the public suite, which takes about 45 s.
const suiteTimeout = 4 * time.Minute

// TestPublicSuite promises that all nine checks of the public compliance suite pass where lists show every status,
// and eight with the specified default. The check of name matching cannot pass with that default. The suite runs at
// the same time against the two nodes of a cluster that do not lead.
func TestPublicSuite(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	followers := c.Followers()
	followers[0].Stop()
	followers[0].SetEnv("HOLDFAST_PINNING_DEFAULT_STATUS=all")
	followers[0].Restart()
	c.Settle()
	suite := installSuite(t)
	// One report for each host name.
	other := strings.Replace(followers[1].URL(), "127.0.0.1", "localhost", 1)
	for _, tc := range []struct {
		name, url, user string
		passed          int
	}{
		{"every status is listed", followers[0].URL(), "suite-all@example.org", 9},
		{"the specified default", other, "suite@example.org", 8},
	} {
		token := c.Leader().UserKey(tc.user).Token
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			passed, report := suite.run(t, tc.url, token)
			if passed != tc.passed {
				t.Errorf("%d of 9 checks pass, want %d\n%s", passed, tc.passed, report)
			}
		})
	}
}

// specification matches the place where the suite keeps the address of the
// specification file.
var specification = regexp.MustCompile(`(const specLocation = )(process\.env\.PSA_SPEC \?\? )?`)

// suite is the installed public suite.
type suite struct {
	node string // Node.js 20, which its packages bring: it does not work on a newer one
	root string // of the package
	spec string // the frozen specification file
}

// TestTheClientsAreInstalled promises that all JavaScript clients can be installed from the one
// lock file.
func TestTheClientsAreInstalled(t *testing.T) {
	modules := harness.NPM(t, jsDir)
	for _, pkg := range []string{harness.NodeCurrent, harness.NodeOfTheSuite} {
		if node := harness.NodeProgram(modules, pkg); !strings.HasPrefix(node, modules) {
			t.Errorf("%s is %s", pkg, node)
		}
	}
}

func installSuite(t *testing.T) suite {
	t.Helper()
	modules := harness.NPM(t, jsDir)
	s := suite{
		node: harness.NodeProgram(modules, harness.NodeOfTheSuite),
		root: filepath.Join(modules, "node_modules", "@ipfs-shipyard", "pinning-service-compliance"),
		spec: os.Getenv("PSA_SPEC"),
	}
	constants := filepath.Join(s.root, "dist", "src", "utils", "constants.js")
	source, err := os.ReadFile(constants)
	if err != nil {
		t.Fatal(err)
	}
	patched := specification.ReplaceAll(source, []byte("${1}process.env.PSA_SPEC ?? "))
	if err := os.WriteFile(constants, patched, 0o644); err != nil {
		t.Fatal(err)
	}
	if s.spec == "" {
		if s.spec, err = filepath.Abs(filepath.Join(jsDir, "ipfs-pinning-service.v1.0.0.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// run says how many of the nine checks passed. The program always ends well: its
// report, named by the host, tells.
func (s suite) run(t *testing.T, base, token string) (passed int, report string) {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	result := filepath.Join(s.root, "dist", "docs", u.Hostname()+".json")
	if err := os.Remove(result); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.node, filepath.Join(s.root, "dist", "src", "index.js"), "-s", base, token)
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "PSA_SPEC="+s.spec)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("suite: %v\n%s", err, out)
	}
	data, err := os.ReadFile(result)
	if err != nil {
		t.Fatalf("suite: %v\n%s", err, out)
	}
	var r struct {
		Total  int `json:"total"`
		Passed int `json:"passed"`
		Failed int `json:"failed"`
	}
	if err := json.Unmarshal(data, &r); err != nil || r.Total != 9 || r.Passed+r.Failed != 9 {
		t.Fatalf("suite: %v in %s\n%s", err, data, out)
	}
	return r.Passed, string(out)
}
