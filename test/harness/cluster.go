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

// Options say what cluster a test wants.
type Options struct {
	Nodes       int      // 0 means 3
	Replication int      // copies; 0 leaves the program's default
	Env         []string // NAME=VALUE for every node
	Args        []string // more flags for every node
	Program     string   // path of the program of every node; empty: the one under test
	Settings    string   // config.toml of every node; empty: the one that the node writes
	// DefaultRates leaves the rates of both APIs at the program's defaults; else they are off.
	DefaultRates bool
	ByTicket     bool     // join with a ticket, not with address and secret
	Folders      []string // data folders of the first nodes, which exist; others are made
	LogBytes     int      // of the end of each node's log that are kept; 0 means 256 KiB
	// Apart gives every node a network namespace of its own, for Cut. The test is
	// skipped where there can be none. HTTP is asked over loopback inside, which
	// foreign programs do not reach.
	Apart bool
	// Line says how packets travel between the nodes, and implies Apart. Nil: they arrive at once.
	Line *Line
}

// Cluster is a set of nodes that know each other.
type Cluster struct {
	Nodes []*Node

	tb      testing.TB
	opts    Options
	http    *http.Client
	dir     string
	network *network // nil unless Apart
}

// requestTimeout bounds one HTTP request of a test.
const requestTimeout = 30 * time.Second

// connectionsPerNode lets concurrent tests keep their connections.
const connectionsPerNode = 64

// settleWithin bounds how long a started cluster may take until every node
// knows every member and the leader.
const settleWithin = 60 * time.Second

// Start starts a cluster and waits until every node is ready and knows all
// others. The first node starts empty, the others join it.
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

// JoinArgs returns the flags that let a new node join through the first node.
func (c *Cluster) JoinArgs(byTicket bool) []string {
	c.tb.Helper()
	first := c.Nodes[0]
	if byTicket {
		return []string{"--join", firstLine(first.CLI("token"))}
	}
	return []string{"--join", first.Status().Node.ClusterAddrs[0], "--secret-file", c.SecretFile()}
}

// SecretFile returns the first node's cluster secret.
func (c *Cluster) SecretFile() string { return filepath.Join(c.Nodes[0].Dir, "cluster.secret") }

// Add starts one more node with more flags and does not wait for it.
func (c *Cluster) Add(args ...string) *Node {
	c.tb.Helper()
	n := c.Prepare(args...)
	if err := n.start(); err != nil {
		c.tb.Fatal(err)
	}
	return n
}

// Prepare makes a node with ports and a data folder that Restart can start.
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

// listen gives a node ports that nobody had yet, and returns the flags of a node that
// listens there.
func (c *Cluster) listen(n *Node, host string) []string {
	c.tb.Helper()
	port := func() string { return strconv.Itoa(c.port()) }
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

// Move makes a node that is down listen on new ports at its next start. The node then has no flags but those of
// its ports and of Options. Move is not for clusters that are Apart.
func (c *Cluster) Move(n *Node) {
	c.tb.Helper()
	if n.Running() || c.network != nil {
		c.tb.Fatalf("%s cannot move", n.Name)
	}
	n.args = append(c.listen(n, "127.0.0.1"), c.opts.Args...)
}

// apart connects a new node to the cluster's network and returns its address
// there.
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

// StartBoxo starts a foreign peer that the cluster's nodes reach.
func (c *Cluster) StartBoxo(flags ...string) *Boxo {
	c.tb.Helper()
	if c.network == nil {
		return StartBoxo(c.tb, flags...)
	}
	host := fmt.Sprintf(addressOf, middle)
	listen := "/ip4/" + host + "/tcp/0,/ip4/" + host + "/udp/0/quic-v1"
	return startBoxo(c.tb, c.network.hub, append([]string{"-listen", listen}, flags...))
}

// unlimited turns the rates off, unless the test is about them: tests send from one
// address what many clients would.
func (o Options) unlimited() []string {
	if o.DefaultRates {
		return nil
	}
	return []string{"HOLDFAST_API_ACCOUNT_RATE=0", "HOLDFAST_API_ADDRESS_RATE=0"}
}

func (c *Cluster) port() int {
	c.tb.Helper()
	p, err := ports.free()
	if err != nil {
		c.tb.Fatal(err)
	}
	return p
}

// ready waits for /readyz of each node.
func (c *Cluster) ready(nodes ...*Node) {
	c.tb.Helper()
	for _, n := range nodes {
		if err := n.WaitReady(c.tb.Context()); err != nil {
			c.tb.Fatal(err)
		}
	}
}

// As returns the same cluster for a subtest, which must not add nodes to it.
func (c *Cluster) As(tb testing.TB) *Cluster {
	other := *c
	other.tb = tb
	other.Nodes = nil
	for _, n := range c.Nodes {
		other.Nodes = append(other.Nodes, n.As(tb))
	}
	return &other
}

// Live returns the nodes whose process runs.
func (c *Cluster) Live() []*Node {
	var out []*Node
	for _, n := range c.Nodes {
		if n.Running() {
			out = append(out, n)
		}
	}
	return out
}

// Settle waits until every running node is ready, sees every other running node as an alive member with the
// same leader, and knows its present addresses. It also waits until every node that is to vote does: a test
// that takes a node down counts on the votes of the others.
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

// maxVoters is the most members that a cluster gives a vote, of consensus.
const maxVoters = 5

// unvoiced returns a member whose process runs and that the cluster has yet to give a vote,
// as a node's status has it, or "".
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

// Leader returns the running node that leads, as soon as a running node says so.
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

// Followers returns the running nodes that do not lead.
func (c *Cluster) Followers() []*Node {
	c.tb.Helper()
	return Without(c.Live(), c.Leader())
}

// Without returns the nodes but one.
func Without(nodes []*Node, gone *Node) []*Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *Node) bool { return n == gone })
}

// LogLines counts the lines with all of these words in what is kept of the nodes' logs.
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

// end ends every process at once, shows the logs of a failed test and removes
// the data.
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

// WaitPinned waits until the pin is pinned and fails at once when it failed.
func WaitPinned(ctx context.Context, c *PinsClient, id string, within time.Duration) (PinStatus, error) {
	return WaitStatus(ctx, c, id, "pinned", within)
}

// WaitStatus waits until the pin has the wanted status. If the pin reaches the other of pinned and failed,
// WaitStatus returns an error at once.
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
