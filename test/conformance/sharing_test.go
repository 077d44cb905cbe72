//go:build conformance

package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// guest is a recipient of shares. It has no account, no profile and no key of the cluster.
type guest struct {
	t    *testing.T
	home string
	env  []string
}

// newGuest returns a guest, with an identity if its name is not empty.
func newGuest(t *testing.T, identity string) *guest {
	t.Helper()
	home := t.TempDir()
	g := &guest{t: t, home: home, env: []string{"HOME=" + home}}
	if identity != "" {
		overwrite(t, filepath.Join(home, "passphrase"), []byte("correct horse\n"))
		g.env = append(g.env, "HOLDFAST_IDENTITY="+filepath.Join(home, identity), "HOLDFAST_IDENTITY_COMMAND=echo correct horse")
		g.run("", "keygen", filepath.Join(home, identity), "--passphrase-file", filepath.Join(home, "passphrase"))
	}
	return g
}

// share returns the share identity of the guest.
func (g *guest) share(identity string) string {
	g.t.Helper()
	var file struct{ Identity string }
	if err := json.Unmarshal(read(g.t, filepath.Join(g.home, identity)), &file); err != nil {
		g.t.Fatal(err)
	}
	return file.Identity
}

// run wants exit code 0.
func (g *guest) run(stdin string, args ...string) string {
	g.t.Helper()
	r := harness.Run(g.t, g.env, stdin, args...)
	if r.Code != 0 {
		g.t.Fatalf("holdfast %q: exit code %d, %s", args, r.Code, r.Stderr)
	}
	return r.Stdout
}

// fails wants exit code 1 and one line with a text.
func (g *guest) fails(says, stdin string, args ...string) {
	g.t.Helper()
	r := harness.Run(g.t, g.env, stdin, args...)
	if r.Code != 1 || !oneLine(r.Stderr) || !strings.Contains(r.Stderr, says) {
		g.t.Errorf("holdfast %q: exit code %d, %q, want %q", args, r.Code, r.Stderr, says)
	}
}

// made is one share in the output of share create --json.
type made struct {
	ID    string `json:"share_id"`
	Owner string `json:"owner"`
	Path  string `json:"path"`
	Link  string `json:"link"`
}

func (c *clientOf) shares(args ...string) (all []made) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(c.run(append(append([]string{"share", "create"}, args...), "--json")...)), &all); err != nil {
		c.t.Fatal(err)
	}
	return all
}

// TestASharedFolder promises that an owner shares one folder as docs/client.md says, at three processes, with a
// person who has an identity and with one who has nothing.
// Both read it at every node and nothing else, a permission to write works and its lack is told, and after a
// revocation at one node, every node refuses the share.
func TestASharedFolder(t *testing.T) {
	longForm(t)
	t.Parallel() // a cluster of its own
	cluster := harness.Start(t, harness.Options{})
	c := newClient(t, cluster, "sharing")
	dir := t.TempDir()
	files := map[string]string{"a": "parent", "papers/plan": "the plan", "papers/2026/will": "the will", "papers-private/b": "sibling"}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		overwrite(t, filepath.Join(dir, name), []byte(text))
	}
	large := harness.RandomBytes(20<<20 + 3)
	overwrite(t, filepath.Join(dir, "papers", "large"), large)
	c.run("sync", "--encrypt", dir, "s3://sharing")
	other := newClient(t, cluster, "unshared")
	other.run("sync", "--encrypt", dir, "s3://unshared")
	ann := newGuest(t, "identity")
	all := c.shares("s3://sharing/papers", "--to", ann.share("identity"), "--link", "--console", cluster.Leader().ConsoleURL())
	if len(all) != 2 || all[0].Path != "/papers" || !strings.HasPrefix(all[1].Link, cluster.Leader().ConsoleURL()+"/shared#v=1&k=") {
		t.Fatalf("%+v", all)
	}
	from := []string{"--from", all[0].Owner}
	want := maps.Clone(filesOf(t, filepath.Join(dir, "papers")))
	for who, g := range map[string]struct {
		*guest
		link  string
		flags []string
	}{"identity": {ann, all[0].Link, from}, "link": {newGuest(t, ""), all[1].Link, nil}} {
		for i, n := range cluster.Nodes {
			flags := append([]string{"--endpoint", n.S3URL()}, g.flags...)
			to := filepath.Join(g.home, fmt.Sprint("to", i))
			g.run(g.link+"\n", append([]string{"share", "open", "-", to}, flags...)...)
			if got := filesOf(t, to); !maps.Equal(got, want) {
				t.Errorf("%s at %s: %d files of %d, or other bytes", who, n.Name, len(got), len(want))
			}
			if i == 0 {
				g.lists(g.link, flags, "2026/will", "large", "plan")
				g.denied(n, g.link, flags)
			}
		}
		g.run(g.link, append([]string{"share", "open", "-"}, g.flags...)...) // by the endpoints of the link
	}
	for says, args := range map[string][]string{
		"neither an encrypted folder nor": {"share", "create", "s3://sharing/nothing", "--link"},
		"--make-bucket creates nosuch":    {"sync", "--encrypt", dir, "s3://nosuch"},
		"--make-bucket creates nosuch2":   {"put", filepath.Join(dir, "a"), "s3://nosuch2/a"},
	} {
		if r := c.try("", args...); r.Code != 1 || !oneLine(r.Stderr) || !strings.Contains(r.Stderr, says) {
			t.Errorf("holdfast %q: exit code %d, %q, want %q", args, r.Code, r.Stderr, says)
		}
	}
	newGuest(t, "identity").fails("for another recipient", all[0].Link, append([]string{"share", "open", "-"}, from...)...)
	for _, args := range [][]string{
		{"ls", "--encrypt", "s3://sharing"},
		{"get", "--encrypt", "s3://sharing/a", "-"},
		{"share", "create", "s3://sharing/papers", "--link"},
		{"sync", "--encrypt", "--delete", "s3://sharing/papers", dir},
	} {
		args = append(args, "--identity", filepath.Join(ann.home, "identity"))
		if r := c.try("", args...); r.Code != 1 || !oneLine(r.Stderr) || !strings.Contains(r.Stderr, "objects in s3://sharing are encrypted for other keys") {
			t.Errorf("holdfast %q with another identity: exit code %d, %q", args, r.Code, r.Stderr)
		}
	}
	sharedCredential(t, cluster, all[1].Link)
	sharedFile(t, c)
	sharedForWriting(t, c)
	sharesAreRevoked(t, c, all, ann)
	sharesExpire(t, c)
}

// lists wants names in the output of share open.
func (g *guest) lists(link string, flags []string, names ...string) {
	g.t.Helper()
	var list struct {
		Files []struct{ Name string }
	}
	out := g.run(link, append([]string{"share", "open", "-", "--json"}, flags...)...)
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		g.t.Fatal(err)
	}
	var got []string
	for _, f := range list.Files {
		got = append(got, f.Name)
	}
	if slices.Sort(got); !slices.Equal(got, names) {
		g.t.Errorf("lists %q, want %q", got, names)
	}
	if text := g.run(link, append([]string{"share", "open", "-"}, flags...)...); strings.Count(text, "\n") != len(names) {
		g.t.Errorf("lists %q", text)
	}
}

// denied wants the refusals of a share that is for reading.
func (g *guest) denied(n *harness.Node, link string, flags []string) {
	g.t.Helper()
	file := filepath.Join(g.home, "new")
	overwrite(g.t, file, []byte("new"))
	open := append([]string{"share", "open", "-"}, flags...)
	g.fails("does not permit this: write", link, append(open, "--put", file)...)
	g.fails("does not permit this: delete", link, append(open, "--rm", "plan")...)
	g.fails("outside the shared folder", link, append(open, "--rm", "../papers-private/b")...)
	g.fails("unknown owner", link, "share", "open", "-", "--endpoint", n.S3URL(), "--from", g.stranger())
}

// stranger returns the share identity of somebody else.
func (g *guest) stranger() string {
	id, err := seal.Generate()
	if err != nil {
		g.t.Fatal(err)
	}
	return id.Public().String()
}

// sharedCredential promises that the credential in a link is one for the ciphertext of one bucket: no
// node accepts it for another bucket, for a change or for the settings of a bucket.
func sharedCredential(t *testing.T, cluster *harness.Cluster, text string) {
	link, err := seal.ParseLink(text)
	if err != nil {
		t.Fatal(err)
	}
	o := newObjects(t, cluster, "nobody@example.org").with(link.Access)
	for _, n := range cluster.Nodes {
		for path, method := range map[string]string{
			"/": "GET", "/unshared?list-type=2&prefix=e/": "GET", "/sharing": "GET", "/sharing?shares": "GET", "/sharing?share=" + link.Token.ShareID: "DELETE",
			"/sharing/e/new": "PUT", "/sharing/plain": "GET",
		} {
			if r := o.callOn(n, method, path, nil); r.Status != 403 {
				t.Errorf("%s %s at %s: %d", method, path, n.Name, r.Status)
			}
		}
	}
}

// sharedFile promises that a share of one file is written to a file or into a folder.
func sharedFile(t *testing.T, c *clientOf) {
	link := c.shares("s3://sharing/papers/2026/will", "--link")[0].Link
	g := newGuest(t, "")
	g.lists(link, nil, "will")
	for _, to := range []string{g.home, filepath.Join(g.home, "named")} {
		g.run(link, "share", "open", "-", to)
	}
	for _, name := range []string{"will", "named"} {
		if got := string(read(t, filepath.Join(g.home, name))); got != "the will" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := g.run(link, "share", "open", "-", "-"); got != "the will" {
		t.Errorf("%q", got)
	}
	if r := c.try("", "share", "create", "s3://sharing/papers/plan", "--link", "--read-write"); r.Code != 1 || !strings.Contains(r.Stderr, "share its folder") {
		t.Errorf("%+v", r)
	}
	if r := c.try("", "share", "create", "s3://sharing/none", "--link"); r.Code != 1 || !strings.Contains(r.Stderr, "not found") {
		t.Errorf("%+v", r)
	}
}

// sharedForWriting promises that the owner sees what a recipient adds and replaces, and that only
// full access removes.
func sharedForWriting(t *testing.T, c *clientOf) {
	writer, all := newGuest(t, ""), newGuest(t, "")
	dir := t.TempDir()
	for name, text := range map[string][]byte{"answer": []byte("yes"), "plan": []byte("a better plan"), "big": harness.RandomBytes(17 << 20)} {
		overwrite(t, filepath.Join(dir, name), text)
	}
	link := c.shares("s3://sharing/papers/", "--link", "--read-write")[0].Link
	writer.run(link, "share", "open", "-", "--put", filepath.Join(dir, "answer"), "--put", filepath.Join(dir, "plan"), "--put", filepath.Join(dir, "big"))
	writer.fails("does not permit this: delete", link, "share", "open", "-", "--rm", "answer")
	for _, name := range []string{"answer", "plan", "big"} {
		if got := c.run("get", "--encrypt", "s3://sharing/papers/"+name, "-"); got != string(read(t, filepath.Join(dir, name))) {
			t.Errorf("the owner reads %d bytes of %s", len(got), name)
		}
	}
	to := t.TempDir()
	c.run("sync", "--encrypt", "s3://sharing/papers", to)
	if got := filesOf(t, to); len(got) != 5 {
		t.Errorf("the owner has %d files", len(got))
	}
	full := c.shares("s3://sharing/papers", "--link", "--full-access")[0].Link
	all.run(full, "share", "open", "-", "--rm", "answer", "--rm", "big")
	if got := c.run("ls", "--encrypt", "-r", "s3://sharing/papers/"); strings.Contains(got, "answer") || strings.Contains(got, "big") || !strings.Contains(got, "plan") {
		t.Errorf("the owner lists %q", got)
	}
}

// sharesAreRevoked promises that a share ends at every node when it was revoked at one.
func sharesAreRevoked(t *testing.T, c *clientOf, all []made, ann *guest) {
	nodes := c.cluster.Nodes
	table := c.run("share", "ls", "s3://sharing")
	for _, m := range all {
		if !strings.Contains(table, m.ID) || !strings.Contains(table, "/papers") {
			t.Errorf("share ls: %q", table)
		}
		if every := c.run("share", "ls"); !strings.Contains(every, m.ID) || !strings.Contains(every, "s3://sharing/papers") {
			t.Errorf("share ls of all buckets: %q", every)
		}
		if every := nodes[1].CLI("share", "ls", "--all"); !strings.Contains(every, m.ID) || !strings.Contains(every, "sharing@example.org") {
			t.Errorf("share ls --all: %q", every)
		}
	}
	reader := newGuest(t, "")
	for i, revoke := range [][]string{{all[0].ID, "s3://sharing"}, {"-"}} {
		args := append([]string{"share", "revoke", "--endpoint", nodes[i].S3URL()}, revoke...)
		if r := c.try(all[i].Link+"\n", args...); r.Code != 0 {
			t.Fatalf("%q: %+v", args, r)
		}
		for _, n := range nodes {
			at := []string{"share", "open", "-", "--endpoint", n.S3URL()}
			if i == 0 {
				ann.fails("the share was revoked", all[0].Link, append(at, "--from", all[0].Owner)...)
				reader.run(all[1].Link, at...) // the other share lives
			} else {
				reader.fails("the share was revoked", all[1].Link, at...)
			}
		}
	}
	if r := c.try("", "share", "revoke", all[0].ID, "s3://sharing"); r.Code != 1 || !strings.Contains(r.Stderr, "holdfast share ls lists them") {
		t.Errorf("%+v", r)
	}
	if table := c.run("share", "ls", "s3://sharing"); strings.Contains(table, all[0].ID) || strings.Contains(table, all[1].ID) {
		t.Errorf("share ls: %q", table)
	}
}

// sharesExpire promises that the command refuses an expired share by its token, and the nodes by its
// credential.
func sharesExpire(t *testing.T, c *clientOf) {
	// The command opens the identity first, which may take seconds.
	m := c.shares("s3://sharing/papers", "--link", "--expires", "10s")[0]
	g := newGuest(t, "")
	harness.Eventually(t, time.Minute, "the nodes refuse an expired share", func() (bool, error) {
		r := harness.Run(t, g.env, m.Link, "share", "open", "-")
		return r.Code == 1 && strings.Contains(r.Stderr, "its time is over"), nil
	})
	var rows []struct {
		ID    string `json:"share_id"`
		State string `json:"state"`
	}
	if err := json.Unmarshal([]byte(c.run("share", "ls", "s3://sharing", "--json")), &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if want := map[bool]string{true: "expired", false: "active"}[row.ID == m.ID]; row.State != want {
			t.Errorf("%+v, want %s", row, want)
		}
	}
}
