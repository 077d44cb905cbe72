package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// Bounds of what the harness waits for.
const (
	readyWithin   = 60 * time.Second // a node from start to /readyz
	stopWithin    = 20 * time.Second // SIGTERM to exit: 10 s of drain and some
	commandWithin = 60 * time.Second // one command line
)

// Node is one Holdfast process (or, between Kill and Restart, its data folder).
type Node struct {
	Name string // for messages: node1, node2, ...
	Dir  string // the data folder

	tb      testing.TB
	http    *http.Client
	args    []string // of `holdfast run`, the same at every start
	pinning string   // host:port
	s3      string
	console string
	admin   string // host:port
	log     *tail
	run     *running // shared by all that As makes

	// Of a cluster whose nodes are apart; else nil and 0.
	network *network
	at      int        // the node's number in it
	inside  *namespace // where the process runs
}

// running is what changes with the starts of a node.
type running struct {
	env  []string // of the next start
	path string   // of the program of the next start; empty: the one under test
	proc *process // of the last start; nil before the first
}

// As returns the same node for a subtest, so that what goes wrong there fails the
// subtest and not its parent.
func (n *Node) As(tb testing.TB) *Node {
	other := *n
	other.tb = tb
	return &other
}

// environment returns what a child sees: nothing of the test's own settings, for
// the program refuses HOLDFAST_ variables that it does not know.
func environment(dir string, extra []string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir()}, extra...)
}

// start runs the node and returns at once.
func (n *Node) start() error {
	path := n.run.path
	if path == "" {
		path = binary(n.tb, holdfastVariable)
	}
	cmd := exec.Command(path, append([]string{"run"}, n.args...)...)
	cmd.Env = environment(n.Dir, n.run.env)
	cmd.Dir = n.Dir
	cmd.Stdout, cmd.Stderr = n.log, n.log
	p, err := startProcess(cmd, n.inside)
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	n.run.proc = p
	return nil
}

// errEnded says that a process ended where it should run.
var errEnded = errors.New("the process ended")

// WaitReady returns once /readyz answers 200, or fails when the process ends.
func (n *Node) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	err := Poll(ctx, pollEvery, func() (bool, error) {
		if n.run.proc.ended() {
			cancel()
			return false, fmt.Errorf("%w: exit code %d", errEnded, n.run.proc.cmd.ProcessState.ExitCode())
		}
		code, err := n.status(ctx, "http://"+n.pinning+"/readyz")
		return code == http.StatusOK, errors.Join(err, fmt.Errorf("/readyz is %d", code))
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w", n.Name, err)
	}
	return nil
}

// status returns the status code of a GET without a token.
func (n *Node) status(ctx context.Context, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := n.http.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// URL returns the base of the pinning API.
func (n *Node) URL() string { return "http://" + n.pinning }

// S3URL returns the base of the object gateway.
func (n *Node) S3URL() string { return "http://" + n.s3 }

// ConsoleURL returns the web console of the node.
func (n *Node) ConsoleURL() string { return "http://" + n.console }

// AdminURL returns the base of metrics and health.
func (n *Node) AdminURL() string { return "http://" + n.admin }

// Pid returns the process id of the last start.
func (n *Node) Pid() int { return n.run.proc.cmd.Process.Pid }

// Running says whether the process lives.
func (n *Node) Running() bool { return n.run.proc != nil && !n.run.proc.ended() }

// ExitCode returns the exit code of the process, which must have ended, and -1 if a signal ended it.
func (n *Node) ExitCode() int { return n.run.proc.cmd.ProcessState.ExitCode() }

// SetEnv adds NAME=VALUE settings for the next start.
func (n *Node) SetEnv(settings ...string) {
	n.run.env = append(slices.Clone(n.run.env), settings...)
}

// Upgrade makes the next start run the program under test in place of Options.Program.
func (n *Node) Upgrade() { n.run.path = "" }

// AddArgs adds flags for the next starts.
func (n *Node) AddArgs(args ...string) { n.args = append(slices.Clone(n.args), args...) }

// DropArgs takes the last arguments away for the next starts.
func (n *Node) DropArgs(last int) { n.args = slices.Clone(n.args[:len(n.args)-last]) }

// ClusterAddr returns where the node listens for members from its next start on, with /p2p/.
func (n *Node) ClusterAddr(id string) string {
	return n.args[slices.Index(n.args, "--cluster-listen")+1] + "/p2p/" + id
}

// Log returns the end of what the node wrote.
func (n *Node) Log() string { return n.log.String() }

// Kill ends the process without a chance to clean up, as a power cut would.
func (n *Node) Kill() {
	n.tb.Helper()
	if err := n.run.proc.signal(syscall.SIGKILL); err != nil {
		n.tb.Fatal(err)
	}
	<-n.run.proc.done
}

// Pause stops the process where it is, as a machine that hangs would, until
// Resume.
func (n *Node) Pause() {
	n.tb.Helper()
	if err := n.run.proc.signal(syscall.SIGSTOP); err != nil {
		n.tb.Fatal(err)
	}
}

// Resume lets a paused process go on.
func (n *Node) Resume() {
	n.tb.Helper()
	if err := n.run.proc.signal(syscall.SIGCONT); err != nil {
		n.tb.Fatal(err)
	}
}

// Stop asks the process to end and wants exit code 0 in time.
func (n *Node) Stop() {
	n.tb.Helper()
	if code := n.End(syscall.SIGTERM); code != 0 {
		n.tb.Fatalf("%s after SIGTERM: exit code %d, want 0\n%s", n.Name, code, n.Log())
	}
}

// End sends a signal to the process, waits for its end and returns the exit code; -1 is that
// of a process which the signal killed.
func (n *Node) End(signal os.Signal) int {
	n.tb.Helper()
	if err := n.run.proc.signal(signal); err != nil {
		n.tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	code, err := n.run.proc.wait(ctx)
	if err != nil {
		n.tb.Fatalf("%s after %s: %v", n.Name, signal, err)
	}
	return code
}

// Restart starts the process again with the same folder, ports and flags, and
// does not wait.
func (n *Node) Restart() {
	n.tb.Helper()
	if n.Running() {
		n.tb.Fatalf("%s runs already", n.Name)
	}
	if err := n.start(); err != nil {
		n.tb.Fatal(err)
	}
}

// sector is the unit of what a file takes on the disk.
const sector = 512

// DiskUse returns what the data folder takes on the disk, in bytes. Files may come
// and go meanwhile.
func (n *Node) DiskUse() (int64, error) {
	var total int64
	err := filepath.WalkDir(n.Dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil {
				if s, ok := info.Sys().(*syscall.Stat_t); ok {
					total += s.Blocks * sector
				}
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return total, err
}

// Result is what a command line answered.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run runs the binary with exactly these arguments and this environment on top
// of the harness's own.
func Run(tb testing.TB, env []string, stdin string, args ...string) Result {
	tb.Helper()
	r, err := runCommand(tb, tb.TempDir(), env, stdin, args)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func runCommand(tb testing.TB, dir string, env []string, stdin string, args []string) (Result, error) {
	return runProgram(commandWithin, binary(tb, holdfastVariable), dir, env, stdin, args)
}

// runProgram runs any program to its end, whatever its exit code.
func runProgram(within time.Duration, path, dir string, env []string, stdin string, args []string) (Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = environment(dir, env)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		return Result{}, fmt.Errorf("%s %s: %w", filepath.Base(path), strings.Join(args, " "), errors.Join(err, ctx.Err()))
	}
	return Result{Stdout: out.String(), Stderr: errs.String(), Code: cmd.ProcessState.ExitCode()}, nil
}

// CLI runs a command against this node's data folder and wants exit code 0.
func (n *Node) CLI(args ...string) string {
	n.tb.Helper()
	return n.CLIWithInput("", args...)
}

// CLIWithInput is CLI with standard input.
func (n *Node) CLIWithInput(stdin string, args ...string) string {
	n.tb.Helper()
	r := n.TryCLI(stdin, args...)
	if r.Code != 0 {
		n.tb.Fatalf("%s: holdfast %s: exit code %d\n%s%s", n.Name, strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// TryCLI runs a command against this node's data folder, whatever it answers.
func (n *Node) TryCLI(stdin string, args ...string) Result {
	n.tb.Helper()
	r, err := n.command(stdin, args)
	if err != nil {
		n.tb.Fatalf("%s: %v", n.Name, err)
	}
	return r
}

func (n *Node) command(stdin string, args []string) (Result, error) {
	return runCommand(n.tb, n.Dir, nil, stdin, append(slices.Clone(args), "--data", n.Dir))
}

// StatusNow returns what `status --json` prints, and refuses unknown fields. It asks the socket in this node's
// folder, because a command takes much more processor time, which would slow a test that waits.
func (n *Node) StatusNow() (Status, error) {
	o := client.New(n.Dir)
	defer o.Close()
	told, err := o.Status(context.Background())
	if err != nil {
		return Status{}, fmt.Errorf("%s: status: %w", n.Name, err)
	}
	told.Node.Admin, told.Node.TLS = "", false // which the command leaves out
	out, err := json.Marshal(told)
	if err != nil {
		return Status{}, fmt.Errorf("%s: status: %w", n.Name, err)
	}
	var s Status
	if err := DecodeStrict(out, &s); err != nil {
		return Status{}, fmt.Errorf("%s: status: %w in %s", n.Name, err, out)
	}
	return s, nil
}

// Status returns StatusNow, and fails the test if there is an error.
func (n *Node) Status() Status {
	n.tb.Helper()
	s, err := n.StatusNow()
	if err != nil {
		n.tb.Fatal(err)
	}
	return s
}

// Get returns the content of a CID as `holdfast get` on this node prints it. Like StatusNow, it asks the socket
// in the node's folder.
func (n *Node) Get(cid string) []byte {
	n.tb.Helper()
	o := client.New(n.Dir)
	defer o.Close()
	body, _, err := o.OpenContent(context.Background(), "", cid)
	if err != nil {
		n.tb.Fatalf("%s: get %s: %v", n.Name, cid, err)
	}
	data, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil {
		n.tb.Fatalf("%s: get %s: %v", n.Name, cid, err)
	}
	return data
}

// UserKey makes an account and an API key for it.
func (n *Node) UserKey(email string, flags ...string) Key {
	n.tb.Helper()
	n.CLIWithInput("a password of some length\n", "user", "add", email, "--password-stdin")
	return n.Key(email, flags...)
}

// Key makes one more API key for an account.
func (n *Node) Key(email string, flags ...string) Key {
	n.tb.Helper()
	out := n.CLI(append([]string{"key", "create", "--user", email, "--json"}, flags...)...)
	var k Key
	if err := DecodeStrict([]byte(out), &k); err != nil {
		n.tb.Fatalf("key create: %v in %s", err, out)
	}
	return k
}

// Pins returns a client of this node's pinning API.
func (n *Node) Pins(token string) *PinsClient {
	return &PinsClient{Base: n.URL(), Token: token, HTTP: n.http}
}

// Metrics returns the node's Prometheus samples by name with labels, as
// `name{label="value"}`.
func (n *Node) Metrics() map[string]float64 {
	n.tb.Helper()
	c := PinsClient{Base: n.AdminURL(), HTTP: n.http}
	resp, err := c.Do(n.tb.Context(), http.MethodGet, "/metrics", nil, nil)
	if err != nil || resp.Status != http.StatusOK {
		n.tb.Fatalf("%s: /metrics: %d %v", n.Name, resp.Status, err)
	}
	samples := map[string]float64{}
	for line := range strings.Lines(string(resp.Body)) {
		cut := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		if strings.HasPrefix(line, "#") || cut < 0 {
			continue
		}
		var v float64
		if err := json.Unmarshal([]byte(strings.TrimSpace(line)[cut+1:]), &v); err == nil {
			samples[line[:cut]] = v
		}
	}
	return samples
}

// Operator is a client of a node's socket.
type Operator = client.Client

// NewKey asks an Operator for an API key.
type NewKey = client.NewKey

// Operator returns a client of the socket in this node's folder, for tests in which one command for each call
// would take too long. The client is closed at the end of the test.
func (n *Node) Operator() *Operator {
	c := client.New(n.Dir)
	n.tb.Cleanup(c.Close)
	return c
}
