//go:build conformance

package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

const (
	founder  = "ada@example.org" // of clusters with one account
	password = "correct horse battery staple"
	catCID   = "bafkreiayx23w765cqfwmxub4r6kdfk43ddpwoufyggpogbn2mzwlogep7u"
)

// common is the cluster of tests that need none of their own, which the first of them starts.
var common struct {
	once    sync.Once
	cluster *harness.Cluster
}

// commonCluster returns a cluster of three that other tests use too. A test has an account of its own there, stops no
// node, and changes nothing that other accounts see.
func commonCluster(t *testing.T) *harness.Cluster {
	t.Helper()
	common.once.Do(func() {
		common.cluster = harness.Start(harness.Lasting(t), harness.Options{Env: []string{"HOLDFAST_CONSOLE_IPFS_GATEWAY=https://gateway.example.org"}})
	})
	if common.cluster == nil {
		t.Fatal("the common cluster did not start: see the first test")
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, n := range common.cluster.Nodes {
			t.Logf("--- end of the log of %s\n%s", n.Name, n.Log())
		}
	})
	return common.cluster.As(t)
}

// signedIn returns the common cluster with a new account, and a browser that has signed in at a follower.
func signedIn(t *testing.T, email string) (*harness.Cluster, *tab) {
	t.Helper()
	t.Parallel()
	c := commonCluster(t)
	c.Nodes[0].CLIWithInput(password, "user", "add", email, "--password-stdin")
	p := startBrowser(t).open(t, c.Followers()[0].ConsoleURL())
	p.signIn(email)
	return c, p
}

// signIn does what a person does who has no session.
func (p *tab) signIn(email string) {
	p.t.Helper()
	p.visit("/")
	p.shows("Password")
	p.enter(`[name=email]`, email)
	p.enter(`[name=password]`, password)
	p.press("Sign in")
	p.shows("Recent pins")
}

// answered tells how every node answers a key.
func answered(t *testing.T, c *harness.Cluster, token string, want int) {
	t.Helper()
	for _, n := range c.Nodes {
		answer, err := n.Pins(token).Do(t.Context(), http.MethodGet, "/pins", nil, nil)
		if err != nil || answer.Status != want {
			t.Errorf("%s answers the key with %d, %v, not %d", n.URL(), answer.Status, err, want)
		}
	}
}

// TestAKeyIsMadeShownAgainAndRevoked: a person signs in at one node and makes a key there, which every node takes. The key is shown
// again to who knows the password. After "revoke" no node takes it.
func TestAKeyIsMadeShownAgainAndRevoked(t *testing.T) {
	const email = "kim@example.org"
	c, p := signedIn(t, email)
	p.picture("overview-empty")
	p.follow("API keys")
	p.shows("There is no key yet")
	p.picture("keys-empty")
	p.enter(`[name=name]`, "laptop")
	p.press("Make key")
	p.shows("The new key")
	p.picture("key-new")
	token := p.fact("Token (Bearer)")
	answered(t, c, token, http.StatusOK)
	p.follow("All keys")
	p.shows("laptop")
	p.picture("keys")
	p.follow("laptop")
	p.shows("Show the key")
	p.picture("key")
	p.expect("403")
	p.enter(`[name=password]`, "not this one")
	p.press("Show")
	p.shows("The password is wrong.")
	p.enter(`[name=password]`, password)
	p.press("Show")
	p.shows("Token (Bearer)")
	if again := p.fact("Token (Bearer)"); again != token {
		t.Errorf("the key shown again is %q, not %q", again, token)
	}
	p.press("Revoke")
	p.press("Revoke this key")
	p.shows("has been refused on every node")
	p.picture("key-revoked")
	answered(t, c, token, http.StatusUnauthorized)
	p.follow("All keys")
	p.shows("Revoked in the last 30 days")
	p.picture("keys-revoked")
}

// TestPinsAreAddedFoundAndDeleted: a pin that was added by a program is in the list, and one that is added on the page is there
// for programs. A bad CID leaves the form as it was.
func TestPinsAreAddedFoundAndDeleted(t *testing.T) {
	const email = "piet@example.org"
	c, p := signedIn(t, email)
	key := c.Nodes[0].Key(email)
	pins := c.Nodes[0].Pins(key.Token)
	p.follow("Pins")
	p.shows("Nothing is pinned yet")
	p.picture("pins-empty")
	p.expect("400")
	p.enter(`#add [name=cid]`, "nonsense")
	p.enter(`#add [name=name]`, "cat")
	p.press("Pin")
	p.shows("is not a valid CID")
	if got := p.valueOf(`#add [name=name]`); got != "cat" {
		t.Errorf("after the error the name is %q", got)
	}
	p.enter(`#add [name=cid]`, catCID)
	p.press("Pin")
	p.shows("Request id")
	for _, n := range c.Nodes[0].Status().Peers {
		p.shows(n.Name)
	}
	p.shows("Added")
	p.picture("pin")
	id := p.fact("Request id")
	if got, err := pins.Get(t.Context(), id); err != nil || got.Pin.CID != catCID || got.Pin.Name != "cat" {
		t.Fatalf("the pin is %+v, %v", got, err)
	}
	for _, name := range []string{"dog", "Catalogue"} {
		if _, err := pins.Post(t.Context(), harness.Pin{CID: catCID, Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	p.follow("All pins")
	p.shows("dog")
	p.picture("pins")
	p.enter(`[data-search]`, "cat")
	p.press("Filter")
	p.shows("Pins 2")
	if text := p.text("tbody"); !strings.Contains(text, "Catalogue") || strings.Contains(text, "dog") {
		t.Errorf("the filter shows %q", text)
	}
	p.follow("cat")
	p.shows("Request id")
	p.shows("Open at gateway.example.org")
	p.press("Replace")
	p.enter(`details [name=name]`, "lion")
	p.enter(`details [name=meta]`, "project=zoo")
	p.picture("pin-replace")
	p.press("Replace this pin")
	p.shows("project: zoo")
	p.shows("Took the place of the pin " + id)
	p.expect("404") // the page of the pin may ask for it once more, because it hears of the end before it is left
	p.press("Delete")
	p.press("Delete this pin")
	p.shows("Pins 2")
	if _, err := pins.Get(t.Context(), id); err == nil {
		t.Error("the pin is still there")
	}
	p.press("Pin many CIDs")
	p.enter(`[name=lines]`, catCID+" panther\nnonsense")
	p.press("Pin all")
	p.shows("1 of 2 pins could not be added.")
	if lines := p.valueOf(`[name=lines]`); lines != "nonsense" {
		t.Errorf("the lines to correct are %q", lines)
	}
	p.picture("pins-done")
	p.follow("All pins")
	p.shows("Pins 3")
	for _, name := range []string{"panther", "dog"} {
		p.click(`//*[@aria-label="Choose ` + name + `"]`)
	}
	p.press("Delete")
	p.shows("2 pins were deleted.")
	p.follow("All pins")
	p.shows("Pins 1")
	p.press("More filters")
	p.enter(`[role=search] [name=meta]`, "project=zoo")
	p.press("Filter")
	p.shows("No pin matches.")
	p.picture("pins-filtered")
	p.follow("Usage")
	p.shows("Requests by day")
	p.press("Show numbers")
	p.picture("usage")
}

// TestSigningInAndOut: a session ends on every node at once, and who has none comes back to the page that was asked
// for after signing in. What does not open an account is told in one sentence.
func TestSigningInAndOut(t *testing.T) {
	const email = "sam@example.org"
	c, p := signedIn(t, email)
	other := c.Leader().ConsoleURL()
	session := p.cookie("holdfast-session")
	if code := get(t, other+"/pins", session); code != http.StatusOK {
		t.Fatalf("another node answers the session with %d", code)
	}
	p.press("Sign out")
	p.shows("Password")
	if code := get(t, other+"/pins", session); code != http.StatusSeeOther {
		t.Errorf("another node answers the session that was ended with %d", code)
	}
	p.visit("/pins?status=failed")
	p.shows("Password")
	p.picture("sign-in")
	p.expect("401")
	for _, name := range []string{email, "nobody@example.org"} {
		p.enter(`[name=email]`, name)
		p.enter(`[name=password]`, "wrong")
		p.press("Sign in")
		p.shows("The e-mail address or the password is wrong.")
	}
	p.picture("sign-in-wrong")
	p.enter(`[name=email]`, email)
	p.enter(`[name=password]`, password)
	p.press("Sign in")
	p.shows("No pin matches")
	if at := p.at(); at != "/pins?status=failed" {
		t.Errorf("signed in at %s", at)
	}
	p.expect("404")
	p.visit("/nowhere")
	p.shows("There is no such page")
	p.picture("not-found")
	p.visit("/status")
	p.shows("Available")
	p.picture("status")
}

// onePinEach waits until each node has a copy of the content of the only pin.
func onePinEach(t *testing.T, c *harness.Cluster) {
	t.Helper()
	harness.Eventually(t, stepTimeout, "each node has a copy", func() (bool, error) {
		for _, peer := range c.Nodes[0].Status().Peers {
			if peer.Pins != 1 {
				return false, fmt.Errorf("%s has %d", peer.ID, peer.Pins)
			}
		}
		return true, nil
	})
}

// isKilled checks that the page of a member says that it does not answer.
func (p *tab) isKilled() {
	p.t.Helper()
	if text := p.text("#member"); !strings.Contains(text, "suspect") && !strings.Contains(text, "down") {
		p.t.Errorf("the member that was killed is shown as %s", text)
	}
}

// setupLink returns the path of the setup link that the first node prints. A node can be ready before it prints.
func setupLink(t *testing.T, first *harness.Node) (path string) {
	t.Helper()
	harness.Eventually(t, stepTimeout, "the first node prints a setup link", func() (bool, error) {
		_, link, _ := strings.Cut(first.Log(), "/setup?t=")
		link, _, whole := strings.Cut(link, "\n")
		path = "/setup?t=" + strings.TrimSpace(link)
		return whole, nil
	})
	return path
}

// TestTheFirstAdministratorSeesTheCluster: the link that the first node prints makes the first administrator, at any node and once. Who
// opened it sees the members, invites a node, adds a person and takes an account away.
func TestTheFirstAdministratorSeesTheCluster(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	c := harness.Start(t, harness.Options{})
	link := setupLink(t, c.Nodes[0])
	p := b.open(t, c.Followers()[0].ConsoleURL())
	p.visit(link)
	p.shows("Set up this cluster")
	p.picture("setup")
	p.enter(`[name=email]`, founder)
	p.enter(`[name=password]`, password)
	p.enter(`[name=again]`, password)
	p.press("Set up")
	p.shows("Recent pins")
	p.expect("404")
	p.visit(link)
	p.shows("Not found")
	p.follow("Cluster")
	p.shows("Members")
	for _, n := range c.Nodes[0].Status().Peers {
		p.shows(n.Name)
	}
	p.picture("cluster")
	p.press("Make a ticket")
	p.shows("holdfast run --data")
	p.picture("cluster-ticket")
	p.follow("Users")
	p.shows("Add a person")
	p.enter(`#add [name=email]`, "bob@example.org")
	p.enter(`#add [name=password]`, "the first password of bob")
	p.press("Add")
	p.shows("Administrator")
	p.picture("user")
	p.enter(`[name=allowance]`, "2 GiB")
	p.press("Change")
	p.shows("The allowance was changed.")
	c.Nodes[0].Key("bob@example.org")
	p.press("Disable this account")
	p.shows("Enable this account")
	p.picture("user-disabled")
	p.follow("All users")
	p.shows("bob@example.org")
	p.picture("users")
	p.readsTheAuditLog()
	p.follow("Users")
	p.shows("Add a person")
	p.follow("bob@example.org")
	p.shows("Remove this account")
	p.enter(`form[action$=remove] [name=email]`, "bob@example.org")
	p.press("Remove this account")
	p.shows("Add a person")
	if text := p.text("tbody"); strings.Contains(text, "bob@example.org") {
		t.Errorf("the account is still there: %s", text)
	}
	root := strings.TrimSpace(c.Nodes[0].CLI("add", write(t, t.TempDir(), "cat.txt", []byte("meow"))))
	onePinEach(t, c)
	p.visit("/cluster")
	p.mark()
	down := c.Followers()[1]
	id := down.Status().Node.ID
	down.Kill()
	p.shows("Not reached")
	p.shows("out of reach")
	p.marked()
	p.picture("cluster-node-down")
	p.click(`//table[contains(@class, "heat")]//td/a`)
	p.shows("Missing copies")
	p.shows("2 of 3")
	if text := p.text("tbody"); !strings.Contains(text, root[:8]) || !strings.Contains(text, "out of reach") {
		t.Errorf("the list shows %q and not %s", text, root)
	}
	p.picture("missing")
	p.visit("/cluster/nodes/" + id)
	p.shows("See what a drain moves")
	p.isKilled()
	p.picture("member")
	p.follow("See what its removal takes away")
	p.shows("for good")
	p.picture("member-remove")
	p.visit("/cluster/activity")
	p.shows("leader changed")
	p.picture("activity")
	p.choosesKinds()
	p.visit("/payments")
	p.shows("Nobody has paid yet")
	p.visit("/cluster/nodes/" + id + "/remove")
	p.shows("for good")
	p.click(`//*[@name="sure"]`)
	p.click(`//*[@name="force"]`)
	p.press("Remove this node")
	p.shows("Add a node")
	for _, peer := range c.Nodes[0].Status().Peers {
		if peer.ID == id {
			t.Errorf("%s is still a member", id)
		}
	}
}

// choosesKinds looks at the events of full disks, of which there are none, and then also at elections.
func (p *tab) choosesKinds() {
	p.t.Helper()
	p.click(`//label[normalize-space()="Full disks"]`)
	p.press("Show")
	p.shows("No event of these kinds")
	p.click(`//label[normalize-space()="Elections"]`)
	p.press("Show")
	p.shows("leader changed")
	if at := p.at(); at != "/cluster/activity?kind=elections&kind=disks" {
		p.t.Errorf("the chosen kinds are at %s", at)
	}
	if text := p.text("#records"); strings.Contains(text, "session begun") {
		p.t.Errorf("of elections and full disks the page shows %s", text)
	}
	p.picture("activity-kinds")
}

// readsTheAuditLog finds in the audit log what the administrator has changed, and verifies it.
func (p *tab) readsTheAuditLog() {
	p.t.Helper()
	p.follow("Cluster")
	p.follow("Audit log")
	p.shows("bob@example.org, 2 GiB")
	p.picture("audit")
	p.enter(`[data-search]`, founder)
	p.do(chromedp.SetValue(chromedp.CSS(`[name=action]`), "user"))
	p.press("Filter")
	harness.Eventually(p.t, stepTimeout, "the filter is in the address", func() (bool, error) { return strings.Contains(p.at(), "action=user"), nil })
	p.shows("user.quota")
	if text := p.text("tbody"); strings.Contains(text, "session.create") {
		p.t.Errorf("%s shows %s", p.at(), text)
	}
	p.click(`//summary[contains(., "2 GiB")]`)
	p.shows("Hash")
	p.picture("audit-row")
	p.press("Verify the log")
	p.shows("The log is intact")
	p.picture("audit-verified")
}

// TestAPersonChangesThePassword: who got a first password changes it; the session elsewhere ends, this one goes on, and the old
// password opens nothing any more.
func TestAPersonChangesThePassword(t *testing.T) {
	longForm(t)
	const email = "pat@example.org"
	c, p := signedIn(t, email)
	elsewhere := startBrowser(t).open(t, c.Leader().ConsoleURL())
	elsewhere.signIn(email)
	p.follow(email)
	p.shows("this session")
	p.picture("account")
	const changed = "a better battery, with a staple"
	p.expect("403")
	for _, present := range []string{"wrong", password} {
		p.enter(`[name=password]`, present)
		p.enter(`[name=new]`, changed)
		p.enter(`[name=again]`, changed)
		p.press("Change password")
		p.shows(map[string]string{"wrong": "The current password is wrong.", password: "The password was changed."}[present])
	}
	elsewhere.visit("/pins")
	elsewhere.shows("Password")
	elsewhere.expect("401")
	elsewhere.enter(`[name=email]`, email)
	elsewhere.enter(`[name=password]`, password)
	elsewhere.press("Sign in")
	elsewhere.shows("is wrong")
	elsewhere.enter(`[name=password]`, changed)
	elsewhere.press("Sign in")
	elsewhere.shows("Pins 0")
	p.visit("/account")
	p.shows("this session")
	p.press("End all other sessions")
	p.shows("All other sessions have ended on every node.")
	elsewhere.visit("/pins")
	elsewhere.shows("Password")
}

// TestAnAppGetsAKey: a program on the person's own machine asks for a key; the person signs in at one node, agrees,
// and the program gets a key that every node takes.
func TestAnAppGetsAKey(t *testing.T) {
	t.Parallel()
	const email = "abe@example.org"
	got := make(chan url.Values, 1)
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/done" {
			got <- r.URL.Query()
		}
		_, _ = w.Write([]byte("the program has its key"))
	}))
	t.Cleanup(program.Close)
	b := startBrowser(t)
	c := commonCluster(t)
	c.Nodes[0].CLIWithInput(password, "user", "add", email, "--password-stdin")
	c.Nodes[0].CLI("app", "add", "backup", "--redirect", "http://127.0.0.1:*/done", "--scope", "storage:read")
	p := b.open(t, c.Followers()[0].ConsoleURL())
	p.expect("400")
	p.visit("/get-key?redirect=" + url.QueryEscape("https://evil.example/done"))
	p.shows("No app is registered")
	p.visit("/get-key?state=7&redirect=" + url.QueryEscape(program.URL+"/done?from=console"))
	p.shows("Password")
	p.enter(`[name=email]`, email)
	p.enter(`[name=password]`, password)
	p.press("Sign in")
	p.shows("backup asks for a key")
	p.picture("get-key")
	p.expect(program.URL) // the browser goes there
	p.press("Allow with a new key")
	p.shows("the program has its key")
	answer := <-got
	if answer.Get("state") != "7" || answer.Get("from") != "console" {
		t.Errorf("the program gets %v", answer)
	}
	answered(t, c, answer.Get("key"), http.StatusOK)
	if apps := c.Nodes[0].CLI("app", "ls"); !strings.Contains(apps, "backup") {
		t.Errorf("the apps are %s", apps)
	}
	c.Nodes[0].CLI("app", "rm", "backup", "--yes")
	p.visit("/get-key?redirect=" + url.QueryEscape(program.URL+"/done"))
	p.shows("No app is registered")
}
