package api_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api"
	"github.com/holdfast-ipfs/holdfast/api/admin"
	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/cluster/placement"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is the API over the real use cases of pins and accounts, with stand-ins
// for membership and files.
type node struct {
	admin.Folders // not called
	state         *clustertest.State
	opts          api.Options
	server        *api.Server

	mu      sync.Mutex
	files   map[string][]byte
	entered chan struct{} // closed when a file is being taken in
	once    sync.Once
}

func (n *node) Candidates() []placement.Node { return nil }

func (n *node) Ready(context.Context) error { return nil }

func (n *node) Status(context.Context) (members.Status, error) {
	view, release := n.state.LocalView()
	defer release()
	return members.Status{
		ClusterID: "cluster", Leader: "n1", Index: view.Index(), Node: clustertest.Members("n1")[0],
		Peers: []members.Peer{{Node: clustertest.Members("n1")[0], Role: "voter", Load: members.Load{State: "alive"}}},
	}, nil
}

func (n *node) CreateTicket(_ context.Context, ttl time.Duration, _ func([]byte)) (string, error) {
	return "holdfast1." + ttl.String(), nil
}

func (n *node) Shortage(context.Context) (members.Shortage, error) { return members.Shortage{}, nil }

func (n *node) MissingOn(context.Context, state.NodeID, members.Class, state.RootKey, int) ([]members.MissingCopy, state.RootKey, error) {
	return nil, "", nil
}

func (n *node) Quorum() members.Quorum {
	return members.Quorum{Votes: 1, Needed: 1, Here: 1, Leader: "n1"}
}

func (n *node) Writable(context.Context) error { return nil }

func (n *node) Named(_ context.Context, who string) (state.Node, error) {
	return state.Node{ID: state.NodeID(who)}, nil
}

func (n *node) Leaving(ctx context.Context, who string, _ bool) (members.Leaving, error) {
	node, err := n.Named(ctx, who)
	return members.Leaving{Peer: members.Peer{Node: node}, Leads: true}, err
}

func (n *node) DrainPlan(context.Context, string) (members.DrainPlan, error) {
	return members.DrainPlan{}, nil
}

func (n *node) Drain(context.Context, state.NodeID, bool) error { return nil }

func (n *node) Remove(_ context.Context, id state.NodeID, force bool) error {
	if !force {
		return state.Errorf(state.CodeConflict, "node %s does not answer", id)
	}
	return nil
}

func (n *node) Add(_ context.Context, r io.Reader, _ content.Layout) (cid.Cid, uint64, error) {
	n.once.Do(func() { close(n.entered) })
	data, err := io.ReadAll(r)
	if err != nil {
		return cid.Undef, 0, err
	}
	c, err := cid.V1Builder{Codec: cid.Raw, MhType: multihash.SHA2_256}.Sum(data)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.files[c.String()] = data
	return c, uint64(len(data)), err
}

type file struct{ io.ReadSeeker }

func (file) Close() error { return nil }

func (n *node) Open(_ context.Context, text string) (io.ReadSeekCloser, uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	data, ok := n.files[text]
	if !ok {
		return nil, 0, state.Errorf(state.CodeNotFound, "nobody has %s", text)
	}
	return file{bytes.NewReader(data)}, uint64(len(data)), nil
}

func (n *node) OpenFor(ctx context.Context, account state.AccountID, text string) (io.ReadSeekCloser, uint64, error) {
	return nil, 0, state.Errorf(state.CodeNotFound, "nobody has %s for %s", text, account)
}

func newNode(t *testing.T) *node {
	t.Helper()
	secret := []byte("a secret of the cluster, 32 byte")
	sealed, err := accounts.NewSigningKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: the path of a Unix socket is short.
	folder, err := os.MkdirTemp("", "hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	n := &node{
		state: clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members("n1"), SealedSigningKey: sealed}),
		files: map[string][]byte{}, entered: make(chan struct{}),
	}
	n.opts = api.Options{
		Pinning: "127.0.0.1:0", Admin: "127.0.0.1:0", Folder: folder,
		Pins: pins.New(pins.Options{State: n.state, Nodes: n}), Accounts: accounts.New(accounts.Options{State: n.state, Secret: secret}),
		Members: n, Files: n, Health: n, Gatherer: prometheus.NewRegistry(), DefaultStatus: []string{"pinned"},
		Logger: slog.New(slog.DiscardHandler),
	}
	return n
}

// run serves until the test or stop ends it.
func (n *node) run(t *testing.T) (stop func() error) {
	t.Helper()
	server, err := api.Listen(n.opts)
	if err != nil {
		t.Fatal(err)
	}
	n.server = server
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return stop
}

func (n *node) client(t *testing.T) *client.Client {
	c := client.New(n.opts.Folder)
	t.Cleanup(c.Close)
	return c
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// The client of the operator socket reads the status, makes tickets, removes peers, and manages users and keys,
// and gets the node's refusals as errors.
func TestTheClientReachesEveryUseCase(t *testing.T) {
	n := newNode(t)
	n.run(t)
	c, ctx := n.client(t), t.Context()

	s := must[client.Status](t)(c.Status(ctx))
	if s.ClusterID != "cluster" || s.Node.Pinning != n.server.Addrs().Pinning || len(s.Peers) != 1 {
		t.Errorf("%+v", s)
	}
	if peers := must[[]client.Peer](t)(c.Peers(ctx)); len(peers) != 1 || peers[0].ID != "n1" {
		t.Errorf("%+v", peers)
	}
	if ticket := must[string](t)(c.CreateTicket(ctx, time.Hour)); ticket != "holdfast1.1h0m0s" {
		t.Error(ticket)
	}
	if err := c.RemovePeer(ctx, "n2", true); err != nil {
		t.Error(err)
	}
	if err := c.RemovePeer(ctx, "n2", false); err == nil || err.Error() != "node n2 does not answer" {
		t.Error(err)
	}
	if u := must[client.User](t)(c.CreateUser(ctx, "Alice@example.org", "a good password")); u.Email != "alice@example.org" {
		t.Errorf("%+v", u)
	}
	var refused *client.Error
	if _, err := c.CreateUser(ctx, "alice@example.org", ""); !errors.As(err, &refused) || refused.Status != 409 || refused.Detail == "" {
		t.Errorf("%v", err)
	}
	if users := must[[]client.User](t)(c.Users(ctx)); len(users) != 2 {
		t.Errorf("%+v", users)
	}
	key := must[client.Key](t)(c.CreateKey(ctx, client.NewKey{User: "alice@example.org", Name: "laptop", Scopes: []string{"storage:read"}, TTL: "1h"}))
	if rows := must[[]client.KeyRow](t)(c.Keys(ctx, "alice@example.org")); len(rows) != 1 || rows[0].ID != key.ID || rows[0].Name != "laptop" || rows[0].Expires == "" {
		t.Errorf("%+v", rows)
	}
	if row, found, err := c.Key(ctx, key.ID); err != nil || !found || row.ID != key.ID || row.User != "alice@example.org" {
		t.Errorf("%+v, %t, %v", row, found, err)
	}
	if row, found, err := c.Key(ctx, "none"); err != nil || found {
		t.Errorf("%+v, %t, %v", row, found, err)
	}
	if got := n.get(t, key.Token); got != 200 {
		t.Errorf("the key lists with %d", got)
	}
	if err := c.RevokeKey(ctx, key.ID); err != nil {
		t.Error(err)
	}
	if got := n.get(t, key.Token); got != 401 {
		t.Errorf("the revoked key lists with %d", got)
	}
}

// get lists pins with a token and returns the status of the answer.
func (n *node) get(t *testing.T, token string) int {
	t.Helper()
	req := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), "GET", "http://"+n.server.Addrs().Pinning+"/pins", nil))
	req.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// The client stores and reads content, and adds, lists, reads, removes and awaits the pins of one account, also
// a list of several pages. An upload that breaks off stores nothing.
func TestTheClientPinsAndKeepsFiles(t *testing.T) {
	n := newNode(t)
	n.run(t)
	c, ctx := n.client(t), t.Context()
	data := bytes.Repeat([]byte("content "), 100_000)
	added := must[client.Content](t)(c.AddContent(ctx, bytes.NewReader(data)))
	if added.Size != uint64(len(data)) {
		t.Errorf("%+v", added)
	}
	body, size, err := c.OpenContent(ctx, "", added.CID)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil || !bytes.Equal(got, data) || size != int64(len(data)) {
		t.Errorf("%d bytes of %d: %v", len(got), size, err)
	}
	if _, _, err := c.OpenContent(ctx, "", "hello"); err == nil || err.Error() != "nobody has hello" {
		t.Error(err)
	}
	if _, _, err := c.OpenContent(ctx, "nobody@example.org", added.CID); err == nil || err.Error() != "there is no account with this e-mail address" {
		t.Error(err)
	}
	exchangesCARs(t, c, data)
	broken := io.MultiReader(strings.NewReader("half"), errorReader{})
	if _, err := c.AddContent(ctx, broken); err == nil || len(n.files) != 2 {
		t.Errorf("half a file was taken: %v", err)
	}

	const more = 700 // than a page
	must[client.User](t)(c.CreateUser(ctx, "alice@example.org", ""))
	if _, _, err := c.OpenContent(ctx, "alice@example.org", added.CID); err == nil || !strings.HasPrefix(err.Error(), "nobody has "+added.CID+" for ") {
		t.Errorf("read as an account: %v", err)
	}
	var ids []string
	for i := range more {
		pin := must[client.PinStatus](t)(c.AddPin(ctx, "alice@example.org", client.Pin{CID: added.CID, Name: fmt.Sprint(i)}))
		ids = append(ids, pin.RequestID)
	}
	slices.Reverse(ids)
	var listed []string
	for pin, err := range c.Pins(ctx, "alice@example.org", client.PinFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, pin.RequestID)
	}
	if !slices.Equal(listed, ids) {
		t.Errorf("%d pins are listed, %d were made, or in another order", len(listed), len(ids))
	}
	for pin, err := range c.Pins(ctx, "", client.PinFilter{}) {
		t.Errorf("the operator has %+v, %v", pin, err)
	}
	if _, err := c.Pin(ctx, "", ids[0]); err == nil {
		t.Error("the operator reads another's pin unasked")
	}
	if pin := must[client.PinStatus](t)(c.Pin(ctx, "alice@example.org", ids[0])); pin.Pin.Name != fmt.Sprint(more-1) {
		t.Errorf("%+v", pin)
	}
	if err := c.RemovePin(ctx, "alice@example.org", ids[0]); err != nil {
		t.Error(err)
	}
	n.hold(t, added.CID)
	var seen []string
	last := must[client.PinStatus](t)(c.WaitPin(ctx, "alice@example.org", ids[1], func(s client.PinStatus) { seen = append(seen, s.Status) }))
	if last.Status != "pinned" || !slices.Contains(seen, "pinned") {
		t.Errorf("%+v after %v", last, seen)
	}
	for _, bad := range []client.Pin{{CID: "hello"}, {CID: added.CID, Origins: []string{"x"}}} {
		var refused *client.Error
		if _, err := c.AddPin(ctx, "", bad); !errors.As(err, &refused) || refused.Status != 400 {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// The client lists every pin once, also where the byte bound of a page ends it before its number of rows is
// reached.
func TestTheClientListsPinsThatSayMuch(t *testing.T) {
	n := newNode(t)
	n.run(t)
	c := n.client(t)
	meta := map[string]string{"notes": strings.Repeat("x", 60_000)}
	const count = 2*state.MaxListBytes/60_000 + 10 // three pages
	var ids []string
	for range count {
		pin := must[client.PinStatus](t)(c.AddPin(t.Context(), "", client.Pin{CID: "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku", Meta: meta}))
		ids = append(ids, pin.RequestID)
	}
	slices.Reverse(ids)
	var listed []string
	for pin, err := range c.Pins(t.Context(), "", client.PinFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, pin.RequestID)
	}
	if !slices.Equal(listed, ids) {
		t.Errorf("%d pins are listed, %d were made, or in another order", len(listed), len(ids))
	}
}

// hold reports that the node has the content of a CID.
func (n *node) hold(t *testing.T, text string) {
	t.Helper()
	key := state.RootOf(must[cid.Cid](t)(cid.Decode(text)))
	view, release := n.state.LocalView()
	root := must[state.Root](t)(view.Root(key))
	release()
	n.state.Apply(t, &state.ReportCopies{Node: "n1", Items: []state.CopyReport{{Root: key, Born: root.Born, Phase: state.Held, Size: 1}}})
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errors.New("the disk is gone") }

// Where no node runs, the client fails with ErrNotRunning and names the path.
func TestWithoutANodeTheClientSaysSo(t *testing.T) {
	c := client.New(t.TempDir())
	if _, err := c.Status(t.Context()); !errors.Is(err, client.ErrNotRunning) || !strings.Contains(err.Error(), "no node is running on /") {
		t.Error(err)
	}
}

// A listener whose port is taken fails with the name of its flag and the address, and leaves no socket behind.
func TestATakenPortNamesItsFlag(t *testing.T) {
	taken := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer taken.Close()
	for flag, set := range map[string]func(*api.Options, string){
		"--pinning-listen": func(o *api.Options, a string) { o.Pinning = a }, "--admin-listen": func(o *api.Options, a string) { o.Admin = a },
		"--gateway-listen": func(o *api.Options, a string) { o.Gateway = a },
	} {
		n := newNode(t)
		set(&n.opts, taken.Addr().String())
		_, err := api.Listen(n.opts)
		if want := flag + " " + taken.Addr().String() + ": address already in use"; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if _, err := os.Stat(filepath.Join(n.opts.Folder, "holdfast.sock")); err == nil {
			t.Error("the socket was left behind")
		}
	}
}

// A node replaces the socket that a dead node left, and never a file that is no socket.
func TestTheSocketOfADeadNodeIsReplaced(t *testing.T) {
	n := newNode(t)
	path := filepath.Join(n.opts.Folder, "holdfast.sock")
	dead := must[*net.UnixListener](t)(net.ListenUnix("unix", &net.UnixAddr{Name: path}))
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	c := n.client(t)
	if _, err := c.Status(t.Context()); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("a dead node: %v", err)
	}
	stop := n.run(t)
	n.hasTheSocket(t, c, path, stop)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Listen(n.opts); err == nil {
		t.Error("somebody's file was replaced")
	}
}

// A node serves its socket also in a folder whose path is longer than the 107 bytes that the path of a Unix
// socket may have.
func TestTheSocketOfALongPath(t *testing.T) {
	n := newNode(t)
	n.opts.Folder = filepath.Join(n.opts.Folder, strings.Repeat("long", 60))
	c := n.client(t)
	if _, err := c.Status(t.Context()); !errors.Is(err, client.ErrNoFolder) || !strings.Contains(err.Error(), n.opts.Folder) {
		t.Errorf("no folder: %v", err)
	}
	if err := os.Mkdir(n.opts.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("no node: %v", err)
	}
	path := filepath.Join(n.opts.Folder, "holdfast.sock")
	for range 2 {
		n.hasTheSocket(t, c, path, n.run(t))
	}
}

// hasTheSocket checks that a running node has the socket at path, for its own user and to
// itself, until it stops.
func (n *node) hasTheSocket(t *testing.T, c *client.Client, path string, stop func() error) {
	t.Helper()
	must[client.Status](t)(c.Status(t.Context()))
	if info := must[fs.FileInfo](t)(os.Stat(path)); info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("mode %s", info.Mode())
	}
	if _, err := api.Listen(n.opts); err == nil || !strings.Contains(err.Error(), "another node runs") {
		t.Errorf("a second node on the folder: %v", err)
	}
	must[client.Status](t)(c.Status(t.Context())) // the first one still has its socket
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
}

// A server that stops accepts no more connections, and ends only when the request under way has its answer.
func TestRequestsUnderWayAreDrained(t *testing.T) {
	n := newNode(t)
	stop := n.run(t)
	c := n.client(t)
	slow, feed := io.Pipe()
	added := make(chan error, 1)
	go func() {
		_, err := c.AddContent(t.Context(), slow)
		added <- err
	}()
	<-n.entered
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	// The listeners are gone at once, while the request goes on.
	for addr := n.server.Addrs().Pinning; ; {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	select {
	case err := <-ended:
		t.Fatalf("ended with a request under way: %v", err)
	default:
	}
	if _, err := io.WriteString(feed, "the rest"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(feed.Close(), <-added, <-ended); err != nil {
		t.Error(err)
	}
}

// A request that is malformed or too large gets its 4xx answer, and one without a token is refused before its
// body is read. The test speaks to a real listener because net/http itself gives some of the answers.
func TestHostileRequestsAreCutShort(t *testing.T) {
	n := newNode(t)
	n.run(t)
	key := must[accounts.Key](t)(n.opts.Accounts.CreateKey(t.Context(), clustertest.OperatorEmail, "", nil, 0))
	auth := "Authorization: Bearer " + key.Token + "\r\n"
	body := `{"cid":"bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"}`
	var many strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&many, "a%d: b\r\n", i)
	}
	chunked := "POST /pins HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
	megabytes := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", 3<<20, strings.Repeat(" ", 3<<20))
	for _, tc := range []struct {
		name, request string
		status        int
		has           string
	}{
		{"a header of 40 KiB", "GET /pins HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 40<<10) + "\r\n\r\n", 431, ""},
		{"10,000 headers", "GET /pins HTTP/1.1\r\nHost: x\r\n" + many.String() + "\r\n", 431, ""},
		{"a long path", "GET /pins/" + strings.Repeat("a", 40<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n", 431, ""},
		{"no host", "GET /pins HTTP/1.1\r\n\r\n", 400, ""},
		{"no HTTP", "HELLO\r\n\r\n", 400, ""},
		{"two lengths", "POST /pins HTTP/1.1\r\nHost: x\r\n" + auth + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400, ""},
		{"a negative length", "POST /pins HTTP/1.1\r\nHost: x\r\n" + auth + "Content-Length: -5\r\n\r\n", 400, ""},
		{"3 MiB announced", "POST /pins HTTP/1.1\r\nHost: x\r\n" + auth + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 3<<20, strings.Repeat(" ", 3<<20)), 413, `"PAYLOAD_TOO_LARGE"`},
		{"3 MiB in chunks", chunked + auth + "\r\n" + megabytes, 413, `"PAYLOAD_TOO_LARGE"`},
		{"3 MiB without a token", chunked + "\r\n" + megabytes, 401, `"UNAUTHORIZED"`},
		{"an endless body without a token", "POST /pins HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n", 401, `"UNAUTHORIZED"`},
		{"a good one in chunks", chunked + auth + "\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body), 202, `"queued"`},
		{"HEAD", "HEAD /pins HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n", 200, ""},
		{"expects to continue", "POST /pins HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", 401, `"UNAUTHORIZED"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn := must[net.Conn](t)(net.Dial("tcp", n.server.Addrs().Pinning))
			defer conn.Close()
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, _ = io.WriteString(conn, tc.request) // the node may close first
			}()
			method, _, _ := strings.Cut(tc.request, " ")
			resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			if err = errors.Join(err, resp.Body.Close()); err != nil && tc.has != "" { // net/http's own answers end in a reset
				t.Error(err)
			}
			if resp.StatusCode != tc.status || !strings.Contains(string(text), tc.has) {
				t.Errorf("%d %s, want %d %s", resp.StatusCode, text, tc.status, tc.has)
			}
			_ = conn.Close() // ends what is still being sent
			<-sent
		})
	}
}

// A listener without an address is not opened, and a wrong default status or address is an error of Listen.
func TestListenersThatAreOffAreOff(t *testing.T) {
	n := newNode(t)
	n.opts.Pinning, n.opts.Admin, n.opts.Folder = "", "", ""
	stop := n.run(t)
	if a := n.server.Addrs(); a != (api.Addrs{}) {
		t.Errorf("%+v", a)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	n = newNode(t)
	n.opts.DefaultStatus = []string{"done"}
	if _, err := api.Listen(n.opts); err == nil {
		t.Error("a wrong default status was taken")
	}
	for _, addr := range []string{"127.0.0.1", "127.0.0.1:99999", "300.0.0.1:1"} {
		n := newNode(t)
		n.opts.Pinning = addr
		if _, err := api.Listen(n.opts); err == nil || !strings.HasPrefix(err.Error(), "--pinning-listen "+addr+": ") {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// Close frees the port of a server that never ran.
func TestAServerThatNeverRanLetsGo(t *testing.T) {
	n := newNode(t)
	s := must[*api.Server](t)(api.Listen(n.opts))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	again := must[net.Listener](t)(net.Listen("tcp", s.Addrs().Pinning))
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// ask sends a GET and returns status and body.
func ask(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	req := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), "GET", url, nil))
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, string(must[[]byte](t)(io.ReadAll(resp.Body)))
}

// notYet is a node that is starting until it is ready.
type notYet struct{ ready atomic.Bool }

func (n *notYet) Ready(context.Context) error {
	if n.ready.Load() {
		return nil
	}
	return errors.New("the node is joining")
}

// A node that is joining answers 503 with the reason in the form of each API, and serves the same connections
// after Open.
func TestANodeThatStartsAnswers(t *testing.T) {
	n := newNode(t)
	starting := new(notYet)
	n.opts.Health, n.opts.S3, n.opts.Console = starting, "127.0.0.1:0", "127.0.0.1:0"
	s := must[*api.Server](t)(api.Bind(n.opts))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	dials := 0
	dialer := new(net.Dialer)
	one := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials++
		return dialer.DialContext(ctx, network, addr)
	}}}
	defer one.CloseIdleConnections()
	pinning, monitor, gateway, pages := "http://"+s.Addrs().Pinning, "http://"+s.Addrs().Admin, "http://"+s.Addrs().S3, "http://"+s.Addrs().Console
	for _, tc := range []struct {
		url    string
		status int
		body   string
	}{
		{monitor + "/healthz", 200, `"alive"`},
		{monitor + "/readyz", 503, "the node is joining"},
		{monitor + "/metrics", 200, ""},
		{pinning + "/healthz", 200, `"alive"`},
		{pinning + "/readyz", 503, `"reason":"SERVICE_UNAVAILABLE"`},
		{pinning + "/pins", 503, "the node is joining"},
		{gateway + "/bucket/key", 503, "<Code>ServiceUnavailable</Code><Message>the node is joining</Message>"},
		{pages + "/", 503, "<!doctype html>"},
		{pages + "/api/v1/session", 503, `{"error":{"reason":"SERVICE_UNAVAILABLE","details":"the node is joining"}}`},
	} {
		if status, body := ask(t, one, tc.url); status != tc.status || !strings.Contains(body, tc.body) {
			t.Errorf("%s: %d %s", tc.url, status, body)
		}
	}
	if _, err := n.client(t).Status(t.Context()); err == nil || err.Error() != "the node is joining" {
		t.Errorf("by the socket: %v", err)
	}
	before := dials
	n.opts.S3, n.opts.Console = "", ""
	n.opts.Objects = objects.New(objects.Options{State: n.state})
	if err := s.Open(n.opts); err != nil {
		t.Fatal(err)
	}
	starting.ready.Store(true)
	for url, want := range map[string]int{
		pinning + "/readyz": 200, monitor + "/readyz": 200, pinning + "/pins": 401, gateway + "/bucket/key": 403,
		pages + "/sign-in": 200, pages + "/api/v1/session": 401, pages + "/api/v1/openapi.json": 200, pages + "/api/v1": 404, pages + "/api/v10": 404,
	} {
		if status, body := ask(t, one, url); status != want {
			t.Errorf("%s: %d %s", url, status, body)
		}
	}
	must[client.Status](t)(n.client(t).Status(t.Context()))
	if dials != before {
		t.Errorf("%d connections, %d before: some were lost", dials, before)
	}
}
