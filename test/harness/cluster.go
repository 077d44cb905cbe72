package harness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Options describe the cluster that a test needs. The zero value is a cluster of three nodes on
// loopback with the program under test.
type Options struct {
	Nodes       int      // number of nodes; 0 means 3
	Replication int      // number of copies; 0 means the default of the program
	Env         []string // environment variables of every node, as NAME=VALUE
	Args        []string // additional flags of `holdfast run` for every node
	Program     string   // path of the program of every node; empty means the program under test
	Settings    string   // text of config.toml of every node; empty means the file that a new node writes
	// DefaultRates keeps the default rate limits of both APIs. Without it, the harness turns the
	// rate limits off.
	DefaultRates bool
	ByTicket     bool     // nodes join with a ticket instead of an address and the secret
	Folders      []string // existing data folders for the first nodes; the other nodes get new folders
	LogBytes     int      // number of bytes at the end of each node's log that are kept; 0 means 256 KiB
	// Apart starts every node in its own network namespace, so that a test can call Cut. If
	// namespaces are not available, the test is skipped. The HTTP APIs of such a node listen on the
	// loopback of its namespace, so only the harness can reach them, and other programs cannot.
	Apart bool
	// Line describes the network between the nodes, and implies Apart. If it is nil, packets arrive
	// at once.
	Line *Line
}

// Cluster is a set of nodes that are members of one cluster.
type Cluster struct {
	Nodes []*Node

	tb      testing.TB
	opts    Options
	http    *http.Client
	dir     string
	network *network // nil unless Apart
}

// requestTimeout is the longest time of one HTTP request of a test. A node answers within some 10 s, on a busy machine
// later.
const requestTimeout = 90 * time.Second

// connectionsPerNode is the number of idle connections to each node that are kept, so that
// concurrent tests can use them again.
const connectionsPerNode = 64

// settleWithin is the longest time in which, after a start, every node must know every member and
// the leader.
const settleWithin = 2 * time.Minute

// Start starts a cluster and waits until every node is ready and knows all others. The first node
// founds the cluster, and the others join it. At the end of the test all processes are ended and
// all files are removed.
func Start(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	var apart *network
	if o.Apart || o.Line != nil {
		apart = newNetwork(tb, o.Line)
	}
	// Not tb.TempDir: its long names would not fit a Unix socket's path.
	dir, err := os.MkdirTemp("", "hf-")
	if err != nil {
		tb.Fatal(err)
	}
	var here *namespace
	transport := here.transport()
	c := &Cluster{
		tb: tb, opts: o, dir: dir, network: apart,
		http: &http.Client{Transport: transport, Timeout: requestTimeout},
	}
	tb.Cleanup(func() {
		transport.CloseIdleConnections()
		c.end()
	})
	first := c.Add()
	c.ready(first)
	for range o.Nodes - 1 {
		c.Add(c.JoinArgs(o.ByTicket)...)
	}
	c.ready(c.Nodes...)
	c.Settle()
	return c
}

// JoinArgs returns the flags of `holdfast run` with which a new node joins through the first node:
// with a ticket, or with an address and the cluster secret.
func (c *Cluster) JoinArgs(byTicket bool) []string {
	c.tb.Helper()
	first := c.Nodes[0]
	if byTicket {
		return []string{"--join", firstLine(first.CLI("token"))}
	}
	return []string{"--join", first.Status().Node.ClusterAddrs[0], "--secret-file", c.SecretFile()}
}

// SecretFile returns the path of the file with the cluster secret in the first node's data folder.
func (c *Cluster) SecretFile() string { return filepath.Join(c.Nodes[0].Dir, "cluster.secret") }

// Add starts one more node with the additional flags args. It does not wait until the node is
// ready.
func (c *Cluster) Add(args ...string) *Node {
	c.tb.Helper()
	n := c.Prepare(args...)
	if err := n.start(); err != nil {
		c.tb.Fatal(err)
	}
	return n
}

// Prepare adds a node with ports and a data folder to the cluster and does not start it. Restart
// starts it.
func (c *Cluster) Prepare(args ...string) *Node {
	c.tb.Helper()
	name := "node" + strconv.Itoa(len(c.Nodes)+1)
	n := &Node{
		Name: name, Dir: filepath.Join(c.dir, name),
		tb: c.tb, http: c.http, log: &tail{most: c.opts.LogBytes}, run: &running{env: append(c.opts.unlimited(), c.opts.Env...), path: c.opts.Program},
	}
	if at := len(c.Nodes); at < len(c.opts.Folders) {
		n.Dir = c.opts.Folders[at]
	} else if err := os.Mkdir(n.Dir, 0o700); err != nil {
		c.tb.Fatal(err)
	}
	if c.opts.Settings != "" {
		if err := os.WriteFile(filepath.Join(n.Dir, "config.toml"), []byte(c.opts.Settings), 0o600); err != nil {
			c.tb.Fatal(err)
		}
	}
	host := "127.0.0.1"
	if c.network != nil {
		host = c.apart(n)
	}
	n.args = append(c.listen(n, host), c.opts.Args...)
	if len(c.Nodes) == 0 && c.opts.Replication > 0 {
		n.args = append(n.args, "--replication", strconv.Itoa(c.opts.Replication))
	}
	n.args = append(n.args, args...)
	c.Nodes = append(c.Nodes, n)
	return n
}

// listen chooses new ports for a node, and returns the flags with which the node listens on them at
// host.
func (c *Cluster) listen(n *Node, host string) []string {
	c.tb.Helper()
	port := func() string { return strconv.Itoa(FreePort(c.tb)) }
	public := port()
	n.pinning, n.s3, n.console, n.admin = "127.0.0.1:"+port(), "127.0.0.1:"+port(), "127.0.0.1:"+port(), "127.0.0.1:"+port()
	return []string{
		"--data", n.Dir,
		"--listen", "/ip4/" + host + "/tcp/" + public,
		"--listen", "/ip4/" + host + "/udp/" + public + "/quic-v1",
		"--cluster-listen", "/ip4/" + host + "/tcp/" + port(),
		"--pinning-listen", n.pinning,
		"--s3-listen", n.s3,
		"--console-listen", n.console,
		"--admin-listen", n.admin,
		"--routing", "off",
		"--allow-private-origins",
	}
}

// Move gives a stopped node new ports for its next start. The node then has only the flags of its
// ports and those in Options.Args. Move fails the test if the nodes of the cluster are Apart.
func (c *Cluster) Move(n *Node) {
	c.tb.Helper()
	if n.Running() || c.network != nil {
		c.tb.Fatalf("%s cannot move", n.Name)
	}
	n.args = append(c.listen(n, "127.0.0.1"), c.opts.Args...)
}

// apart connects a new node to the cluster's simulated network and returns its address there.
func (c *Cluster) apart(n *Node) string {
	c.tb.Helper()
	ns, at, host, err := c.network.join()
	if err != nil {
		c.tb.Fatal(err)
	}
	transport := ns.transport()
	c.tb.Cleanup(transport.CloseIdleConnections)
	n.network, n.at, n.inside = c.network, at, ns
	n.http = &http.Client{Transport: transport, Timeout: requestTimeout}
	return host
}

// StartBoxo starts a foreign IPFS peer, with flags of test/foreign, that the nodes of the cluster
// can reach.
func (c *Cluster) StartBoxo(flags ...string) *Boxo {
	c.tb.Helper()
	if c.network == nil {
		return StartBoxo(c.tb, flags...)
	}
	host := fmt.Sprintf(addressOf, middle)
	listen := "/ip4/" + host + "/tcp/0,/ip4/" + host + "/udp/0/quic-v1"
	return startBoxo(c.tb, c.network.hub, append([]string{"-listen", listen}, flags...))
}

// unlimited returns the environment variables that turn rate limits off, or none with DefaultRates.
// Rate limits are off by default, because a test sends from one address what many clients would
// send.
func (o Options) unlimited() []string {
	if o.DefaultRates {
		return nil
	}
	return []string{"HOLDFAST_API_ACCOUNT_RATE=0", "HOLDFAST_API_ADDRESS_RATE=0"}
}

// ready waits until /readyz of each of the nodes answers 200.
func (c *Cluster) ready(nodes ...*Node) {
	c.tb.Helper()
	for _, n := range nodes {
		if err := n.WaitReady(c.tb.Context()); err != nil {
			c.tb.Fatal(err)
		}
	}
}

// As returns the same cluster for a subtest, so that errors fail the subtest. The subtest must not
// add nodes to it.
func (c *Cluster) As(tb testing.TB) *Cluster {
	other := *c
	other.tb = tb
	other.Nodes = nil
	for _, n := range c.Nodes {
		other.Nodes = append(other.Nodes, n.As(tb))
	}
	return &other
}

// Live returns the nodes whose process is running.
func (c *Cluster) Live() []*Node {
	var out []*Node
	for _, n := range c.Nodes {
		if n.Running() {
			out = append(out, n)
		}
	}
	return out
}

// Settle waits until every running node is ready, reports the same leader, reports every other
// running node as alive, and knows the current addresses of the others. It also waits until each
// running node that should be a voter is one, because tests that stop a node rely on the votes of
// the others.
func (c *Cluster) Settle() {
	c.tb.Helper()
	c.ready(c.Live()...)
	Eventually(c.tb, settleWithin, "the nodes know each other", func() (bool, error) {
		leader, addrs := "", map[string][]string{}
		var all []Status
		for _, n := range c.Live() {
			s, err := n.StatusNow()
			if err != nil {
				return false, err
			}
			all, addrs[s.Node.ID] = append(all, s), s.Node.Addrs
		}
		for _, s := range all {
			alive := 0
			for _, p := range s.Peers {
				if is, runs := addrs[p.ID]; runs && p.State == "alive" && len(p.Addrs) > 0 && slices.Equal(p.Addrs, is) {
					alive++
				}
			}
			if alive != len(all) || s.Leader == "" || (leader != "" && leader != s.Leader) {
				return false, fmt.Errorf("%s sees %d alive members where they are, and the leader %q", s.Node.Name, alive, s.Leader)
			}
			leader = s.Leader
			if id := unvoiced(s, addrs); id != "" {
				return false, fmt.Errorf("%s sees %s wait for its vote", s.Node.Name, id)
			}
		}
		return true, nil
	})
}

// maxVoters is the largest number of voters in a cluster, as in package consensus.
const maxVoters = 5

// unvoiced returns the id of a member whose process is running and that should be a voter but is
// none yet, according to the status s of a node; "" if there is no such member. runs has the
// running nodes by id.
func unvoiced(s Status, runs map[string][]string) (id string) {
	members, voters := 0, 0
	for _, p := range s.Peers {
		if p.Role == "voter" {
			voters++
		}
		if p.Quarantine != "" {
			continue
		}
		members++
		if _, here := runs[p.ID]; here && p.Role != "voter" {
			id = p.ID
		}
	}
	due := min(members, maxVoters)
	if due > 2 && due%2 == 0 {
		due--
	}
	if voters >= due {
		return ""
	}
	return id
}

// Leader waits until a running node reports that it is the leader itself, and returns this node.
func (c *Cluster) Leader() *Node {
	c.tb.Helper()
	var leader *Node
	Eventually(c.tb, settleWithin, "a running node leads", func() (bool, error) {
		var errs error
		for _, n := range c.Live() {
			s, err := n.StatusNow()
			if err != nil {
				errs = errors.Join(errs, err)
				continue
			}
			if s.Leader == s.Node.ID {
				leader = n
				return true, nil
			}
		}
		return false, errs
	})
	return leader
}

// Followers returns the running nodes except the leader.
func (c *Cluster) Followers() []*Node {
	c.tb.Helper()
	return Without(c.Live(), c.Leader())
}

// Without returns the nodes except one.
func Without(nodes []*Node, gone *Node) []*Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *Node) bool { return n == gone })
}

// LogLines returns the number of lines that contain all of the words, in the kept ends of the logs
// of all nodes.
func (c *Cluster) LogLines(words ...string) (lines int) {
	for _, n := range c.Nodes {
		for line := range strings.Lines(n.Log()) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				lines++
			}
		}
	}
	return lines
}

// end kills every process, prints the logs if the test has failed, and removes the data folders.
func (c *Cluster) end() {
	ended := make(chan struct{})
	for _, n := range c.Nodes {
		go func() {
			defer func() { ended <- struct{}{} }()
			if n.run.proc != nil {
				n.run.proc.end(c.tb)
			}
		}()
	}
	for range c.Nodes {
		<-ended
	}
	if c.tb.Failed() {
		for _, n := range c.Nodes {
			c.tb.Logf("--- end of the log of %s\n%s", n.Name, n.Log())
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		c.tb.Errorf("remove the data folders: %v", err)
	}
}

// WaitPinned waits until the pin is pinned. It returns an error if the pin fails or if the time
// within is over.
func WaitPinned(ctx context.Context, c *PinsClient, id string, within time.Duration) (PinStatus, error) {
	return WaitStatus(ctx, c, id, "pinned", within)
}

// WaitStatus waits until the pin has the status want. It returns an error at once if the pin is
// pinned or failed and want is another status, because such a pin does not change any more.
func WaitStatus(ctx context.Context, c *PinsClient, id, want string, within time.Duration) (PinStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var s PinStatus
	var final error
	err := Poll(ctx, pollEvery, func() (bool, error) {
		var err error
		if s, err = c.Get(ctx, id); err != nil {
			return false, err
		}
		if s.Status != want && (s.Status == "failed" || s.Status == "pinned") {
			final = fmt.Errorf("pin %s is %s: %v", id, s.Status, s.Info)
			return true, nil
		}
		return s.Status == want, fmt.Errorf("pin %s is %s: %v", id, s.Status, s.Info)
	})
	return s, errors.Join(err, final)
}
