package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// demoPeerVariable is the environment variable that names the program of a foreign IPFS peer for
// the demo: an IPFS implementation other than Holdfast. When ready, the program prints one line
// of JSON, see demoPeer. It then accepts commands over HTTP.
const demoPeerVariable = "HOLDFAST_DEMO_PEER"

// Sizes and time limits of the demo.
const (
	demoNodes   = 3
	demoFile    = 8 << 20          // size of the pinned file in bytes
	demoStep    = 90 * time.Second // longest time of one step of the tour
	demoPoll    = 50 * time.Millisecond
	demoCall    = 10 * time.Second // longest time of one HTTP call
	demoAccount = "ann@example.org"
)

func (a *app) demoCommand() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a cluster of three nodes on this machine as a tour",
		Long: `Starts three nodes on loopback, each a process of its own, in a temporary
folder. The tour pins a file through one node, reads it from the others, kills a
node, and reads the file again. The nodes then run until Ctrl-C, so that you can
try things. At the end the command removes the folder.

` + demoPeerVariable + ` can name a program that runs an IPFS peer other than
Holdfast. That peer then offers the file. "make demo" builds such a program.`,
		Example: "  holdfast demo\n  holdfast demo --once",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("data") {
				return usagef("%s: --data has no effect, because the demo uses a temporary folder", called(cmd))
			}
			return a.demo(cmd.Context(), once)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "exit after the tour")
	return cmd
}

// demo is one run of the command demo, which starts a cluster on this machine and shows its
// features step by step.
type demo struct {
	app     *app
	palette palette
	live    bool   // standard output is a terminal, so that a line can be overwritten
	program string // path of this executable
	dir     string // temporary folder with all files of the demo
	http    *http.Client

	nodes []*demoNode
	peer  *demoPeer // the foreign IPFS peer; nil without demoPeerVariable
	file  demoContent
	token string
	pin   string // id of the pin request
}

// demoNode is one node of the demo.
type demoNode struct {
	*child
	name    string
	dir     string
	id      string
	pinning string // host:port of the pinning API
	s3      string
	op      operator
}

// demo runs all steps of the demo. If once is false, it then leaves the nodes running until ctx
// ends. Before it returns, it always ends the processes and removes their files.
func (a *app) demo(ctx context.Context, once bool) (err error) {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "holdfast-demo-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	d := &demo{
		app: a, palette: paletteOf(a.stdout, a.environ), live: isTerminal(a.stdout),
		program: program, dir: dir, http: &http.Client{Timeout: demoCall},
	}
	defer func() {
		if ctx.Err() != nil {
			a.say(a.stdout, "\n  Ending the nodes ...\n")
			err = nil // asked for
		}
		err = errors.Join(err, d.end())
		if err == nil {
			a.say(a.stdout, "  All ended, %s is gone.\n", dir)
		}
	}()
	a.say(a.stdout, "\n  %s  %s\n\n", d.palette.bold("Holdfast demo"), d.palette.dim("three nodes on this machine, in "+dir))
	if err := d.tour(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d.sayWhatToTry(once)
	if once {
		return nil
	}
	return d.watch(ctx)
}

// watch waits until ctx ends. It prints a line for each node whose process ends before that.
func (d *demo) watch(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	told := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, n := range d.nodes {
			if n.ended() && !told[n.name] {
				told[n.name] = true
				d.app.say(d.app.stdout, "  %s %v\n", d.palette.red("!"), n.failure())
			}
		}
	}
}

// end stops all processes concurrently and then removes the temporary folder.
func (d *demo) end() error {
	var children []*child
	for _, n := range d.nodes {
		children = append(children, n.child)
	}
	if d.peer != nil {
		children = append(children, d.peer.child)
	}
	ended := make(chan error)
	for _, c := range children {
		go func() { ended <- c.stop() }()
	}
	var errs []error
	for range children {
		errs = append(errs, <-ended)
	}
	d.http.CloseIdleConnections()
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}

// step runs do as one step of the demo, for at most demoStep. It prints the title, the duration
// and the details that do returns. If do fails, the error contains the title.
func (d *demo) step(ctx context.Context, title string, do func(ctx context.Context) (details []string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, demoStep)
	defer cancel()
	if d.live {
		d.app.say(d.app.stdout, "  %s %s", d.palette.yellow("…"), title)
	}
	begun := time.Now()
	details, err := do(ctx)
	mark := d.palette.green("✓")
	if err != nil {
		mark = d.palette.red("✗")
	}
	if d.live {
		d.app.say(d.app.stdout, "\r\x1b[K")
	}
	d.app.say(d.app.stdout, "  %s %s  %s\n", mark, pad(title, titleWidth), d.palette.dim(humanTime(time.Since(begun))))
	for _, line := range details {
		d.app.say(d.app.stdout, "      %s\n", line)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	return nil
}

// titleWidth is the width to which the titles of steps are padded, in characters, so that their
// durations form a column.
const titleWidth = 62

// settings returns the text of the settings file of a node of the demo. The node listens on free
// ports of the loopback address and does not use the public IPFS network.
func (n *demoNode) settings() string {
	return fmt.Sprintf(`[node]
name = %q
[peer]
listen = ["/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"]
cluster_listen = ["/ip4/127.0.0.1/tcp/0"]
routing = "off"
allow_private_origins = true
[pinning]
listen = "127.0.0.1:0"
[s3]
listen = "127.0.0.1:0"
[console]
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
`, n.name)
}

// addNode starts a new node and waits until it is ready. The node joins the cluster with ticket;
// if ticket is empty, it creates a cluster.
func (d *demo) addNode(ctx context.Context, ticket string) error {
	name := fmt.Sprintf("node%d", len(d.nodes)+1)
	n := &demoNode{name: name, dir: filepath.Join(d.dir, name)}
	if err := os.Mkdir(n.dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(n.dir, "config.toml"), []byte(n.settings()), 0o600); err != nil {
		return err
	}
	n.op = d.app.connect(n.dir)
	var join []string
	if ticket != "" {
		join = []string{"--join", ticket}
	}
	if err := d.start(n, join...); err != nil {
		return err
	}
	d.nodes = append(d.nodes, n)
	return d.ready(ctx, n)
}

// start starts the process of the node n. more are additional arguments of holdfast run.
func (d *demo) start(n *demoNode, more ...string) (err error) {
	cmd := exec.Command(d.program, append([]string{"run", "--data", n.dir}, more...)...)
	cmd.Env = withoutSettings(d.app.environ)
	n.child, err = startChild(n.name, filepath.Join(d.dir, n.name+".log"), cmd)
	return err
}

// ready waits until n has joined the cluster and serves requests. It stores the id and the
// addresses of the node in n.
func (d *demo) ready(ctx context.Context, n *demoNode) error {
	return until(ctx, demoPoll, n.child, func(ctx context.Context) (bool, error) {
		s, err := n.op.Status(ctx)
		if err != nil || s.Node.Pinning == "" {
			return false, err
		}
		n.id, n.pinning, n.s3 = s.Node.ID, s.Node.Pinning, s.Node.S3
		code, err := d.get(ctx, "http://"+n.pinning+"/readyz", "", nil)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%s is not ready, /readyz answers %d", n.name, code)
		}
		return err == nil, err
	})
}

// everyoneAlive waits until each node of the demo reports that the given number of members are
// alive and have reported their free disk space.
func (d *demo) everyoneAlive(ctx context.Context, members int) error {
	for _, n := range d.nodes {
		err := until(ctx, demoPoll, n.child, func(ctx context.Context) (bool, error) {
			s, err := n.op.Status(ctx)
			alive := 0
			for _, p := range s.Peers {
				if p.State == "alive" && p.FreeBytes > 0 {
					alive++
				}
			}
			return alive == members, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sayWhatToTry prints commands that the user can try while the nodes keep running. If once is
// true, there are no nodes after the demo, and it omits them.
func (d *demo) sayWhatToTry(once bool) {
	a, p := d.app, d.palette
	a.say(a.stdout, "\n  That was the Pinning Service API and the object gateway.\n")
	if once {
		return
	}
	program := shellQuote(d.program)
	first, last := d.nodes[0], d.nodes[len(d.nodes)-1]
	a.say(a.stdout, "  The nodes keep running. Try, in another terminal:\n\n")
	for _, line := range []string{
		"export TOKEN=" + d.token,
		`curl -H "Authorization: Bearer $TOKEN" http://` + first.pinning + "/pins",
		`curl -H "Authorization: Bearer $TOKEN" http://` + last.pinning + "/pins/" + d.pin,
		`curl -H "Authorization: Bearer $TOKEN" "http://` + last.s3 + demoBucket + `?list-type=2"`,
		program + " status --data " + shellQuote(first.dir),
		program + " add " + program + " --data " + shellQuote(first.dir),
		program + " get " + d.file.CID + " -o copy --data " + shellQuote(last.dir),
		program + " pin ls --user " + demoAccount + " --data " + shellQuote(last.dir),
	} {
		a.say(a.stdout, "  %s\n", p.cyan(line))
	}
	a.say(a.stdout, "\n  Logs: %s\n  %s\n", strings.ReplaceAll(filepath.Join(d.dir, "node1.log"), "node1.log", "node*.log"), p.bold("Ctrl-C ends everything and removes the folder."))
}
