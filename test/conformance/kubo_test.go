//go:build conformance

package conformance

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// everyStatus is what Kubo's commands are told to list all pins.
const everyStatus = "--status=" + harness.AllStatuses

// kuboOf starts a Kubo of an account whose pinning service is a node, by the name holdfast.
func kuboOf(t *testing.T, c *harness.Cluster, n *harness.Node, email string) (*service, *harness.Kubo) {
	t.Helper()
	s, kubo := newService(t, c, email), harness.StartKubo(t)
	kubo.Do("pin", "remote", "service", "add", "holdfast", n.URL(), s.token)
	return s, kubo
}

// kuboPins has the cluster pin what Kubo has, to the end.
func kuboPins(t *testing.T, kubo *harness.Kubo, root string) {
	t.Helper()
	if got := kubo.Do("pin", "remote", "add", "--service=holdfast", root); !strings.HasSuffix(got, "Status: pinned") {
		t.Fatalf("%s: %q", root, got)
	}
}

// TestKubo promises that the commands of a stock Kubo for remote pinning work on a node that does not lead, and that
// Kubo fetches its file back from the cluster.
func TestKubo(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	const service = "--service=holdfast"
	node := c.Followers()[0]
	s, kubo := kuboOf(t, c, node, "kubo@example.org")
	remote := func(command string, args ...string) string {
		t.Helper()
		return kubo.Do(append([]string{"pin", "remote", command, service}, args...)...)
	}
	if got := kubo.Do("pin", "remote", "service", "ls", "--stat"); got != "holdfast "+node.URL()+" 0/0/0/0" {
		t.Fatalf("the service is %q", got)
	}

	// In the foreground it waits until the cluster has fetched the file from it.
	files := kubo.AddRandom(3, 1_500_000)
	for i, f := range files {
		name := fmt.Sprint("file ", i)
		want := "CID:    " + f.CID + "\nName:   " + name + "\nStatus: pinned"
		if got := remote("add", "--name="+name, f.CID); got != want {
			t.Fatalf("add: %q, want %q", got, want)
		}
	}
	lost := nowhere().String()
	if got := remote("add", "--background", "--name=lost", lost); !strings.HasSuffix(got, "Status: queued") {
		t.Fatalf("add in the background: %q", got)
	}
	line := func(i int) string { return fmt.Sprintf("%s\tpinned\tfile %d", files[i].CID, i) }
	for args, want := range map[string]string{
		"":                       line(2) + "\n" + line(1) + "\n" + line(0),
		"--name=file 1":          line(1),
		"--cid=" + files[0].CID:  line(0),
		"--name=nothing of that": "",
	} {
		var more []string
		if args != "" {
			more = append(more, args)
		}
		if got := remote("ls", more...); got != want {
			t.Errorf("ls %s: %q, want %q", args, got, want)
		}
	}
	if got := remote("ls", everyStatus, "--cid="+lost); !strings.HasPrefix(got, lost+"\tqueued\t") && !strings.HasPrefix(got, lost+"\tpinning\t") {
		t.Errorf("ls of what nobody has: %q", got)
	}

	// Without the file it gets it back from the cluster.
	kubo.Do("pin", "rm", files[0].CID)
	kubo.Do("repo", "gc", "--quiet")
	if _, err := kubo.Try("", "--offline", "cat", files[0].CID); err == nil {
		t.Fatal("kubo has the file still")
	}
	if got, err := kubo.Fetch(files[0].CID, node.Status().Node.Addrs); err != nil || got != files[0] {
		t.Errorf("from the cluster: %+v, %v", got, err)
	}

	remote("rm", everyStatus, "--name=lost")
	if _, err := kubo.Try("", "pin", "remote", "rm", service); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("rm of several: %v", err)
	}
	remote("rm", "--force")
	if got := kubo.Do("pin", "remote", "service", "ls", "--stat"); !strings.HasSuffix(got, " 0/0/0/0") || len(s.all()) != 0 {
		t.Errorf("after removing all, %d pins: %q", len(s.all()), got)
	}
}

// TestAKuboThatIsNotDialled promises that the content of a Kubo with private addresses only, as behind a NAT, is
// pinned. Kubo dials the node, which treats Kubo as an origin of the pin and not as an unknown peer. At the rate of an
// unknown peer (256 KiB a second) the content would take 3 minutes, longer than the test waits.
func TestAKuboThatIsNotDialled(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Nodes: 1, Args: []string{"--allow-private-origins=false"}})
	s, kubo := kuboOf(t, c, c.Nodes[0], "nat@example.org")
	f := kubo.AddRandom(1, 48<<20)[0]
	kubo.Do("pin", "remote", "add", "--service=holdfast", "--background", f.CID)
	s.pinned(s.all()[0].RequestID)
	if !f.Matches(c.Nodes[0].Get(f.CID)) {
		t.Error("other bytes came")
	}
}

// TestImportOfKubosPins promises that pin import takes over the list that Kubo prints, with its names.
func TestImportOfKubosPins(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	s := newService(t, c, "moved@example.org")
	kubo := harness.StartKubo(t)
	var want []string
	for i, f := range kubo.AddRandom(3, 300_000) {
		name := ""
		if i > 0 { // the first stays without a name
			name = fmt.Sprintf("with blanks, number %d", i)
			kubo.Do("pin", "rm", f.CID)
			kubo.Do("pin", "add", "--name="+name, f.CID)
		}
		want = append(want, f.CID+" "+name)
	}
	list, err := kubo.Try("", "pin", "ls", "--type=recursive", "--names")
	if err != nil {
		t.Fatal(err)
	}
	r := c.Followers()[0].TryCLI(list, "pin", "import", "--user", "moved@example.org", "--origin", kubo.Addrs[0])
	if r.Code != 0 {
		t.Fatalf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	var got []string
	for _, p := range s.all() {
		s.pinned(p.RequestID)
		got = append(got, p.Pin.CID+" "+p.Pin.Name)
	}
	for _, row := range want {
		if !slices.Contains(got, row) {
			t.Errorf("%q is not among %q of\n%s", row, got, list)
		}
	}
}

// kuboLooksEvery is how often Kubo looks at its settings, which nothing changes.
const kuboLooksEvery = 30 * time.Second

// TestKuboReplacesThePinOfItsFiles promises that Kubo keeps the root of ipfs files pinned in one pin of its name,
// which it replaces when the root changes.
func TestKuboReplacesThePinOfItsFiles(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	s, kubo := kuboOf(t, c, c.Followers()[0], "mfs@example.org")
	kubo.Do("config", "--json", "Pinning.RemoteServices.holdfast.Policies.MFS", `{"Enable": true, "PinName": "my files", "RepinInterval": "1s"}`)
	kubo.Restart()
	last := ""
	for i := range 2 {
		if _, err := kubo.Try(fmt.Sprint("text ", i), "files", "write", "--create", fmt.Sprint("/f", i)); err != nil {
			t.Fatal(err)
		}
		root := kubo.Do("files", "stat", "--hash", "/")
		harness.Eventually(t, 2*kuboLooksEvery+pinnedWithin, "the root of the files is pinned", func() (bool, error) {
			got, err := s.next().List(t.Context(), url.Values{"name": {"my files"}})
			return err == nil && got.Count == 1 && got.Results[0].Pin.CID == root && got.Results[0].RequestID != last, err
		})
		all := s.all()
		if len(all) != 1 {
			t.Fatalf("%d pins", len(all))
		}
		last = all[0].RequestID
	}
}

// TestKuboPinsAFolderWithAnEmptyFile promises that a folder with an empty file is pinned from a Kubo, and that
// another Kubo gets it from the cluster with that file. Kubo says that it has a block of no bytes, and never sends
// it.
func TestKuboPinsAFolderWithAnEmptyFile(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	node := c.Followers()[0]
	_, kubo := kuboOf(t, c, node, "empty@example.org")
	folder := t.TempDir()
	files := map[string]string{"__init__.py": "", "main.py": "print()\n"}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []string{"0", "1"} {
		root := kubo.Do("add", "--recursive", "--quieter", "--cid-version="+version, folder)
		kuboPins(t, kubo, root)
		to, err := harness.StartKubo(t).Get(root, node.Status().Node.Addrs)
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range files {
			if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != content {
				t.Errorf("version %s: %s is %q, %v", version, name, got, err)
			}
		}
	}
}

// TestKuboPinsWhatIsSigned promises that a node of dag-jose is pinned from a Kubo, with the payload that it signs.
// Kubo knows that the node links to its payload.
func TestKuboPinsWhatIsSigned(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	node := c.Followers()[0]
	_, kubo := kuboOf(t, c, node, "signed@example.org")
	store := func(codec, node string) string {
		t.Helper()
		out, err := kubo.Try(node, "dag", "put", "--store-codec="+codec)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	file := kubo.AddRandom(1, 300_000)[0]
	payload := must(cid.Decode(store("dag-cbor", fmt.Sprintf(`{"file":{"/":%q}}`, file.CID))))
	jws := store("dag-jose", fmt.Sprintf(`{"payload":%q,"signatures":[{"signature":"AQID"}]}`, base64.RawURLEncoding.EncodeToString(payload.Bytes())))
	root := store("dag-cbor", fmt.Sprintf(`{"prev":{"/":%q}}`, jws))
	kuboPins(t, kubo, root)
	other := harness.StartKubo(t)
	other.Do("swarm", "connect", node.Status().Node.Addrs[0])
	if got := other.Do("dag", "get", jws+"/link/file"); got != kubo.Do("dag", "get", file.CID) {
		t.Errorf("the file that is signed is %q", got)
	}
}
