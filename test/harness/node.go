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

// Longest times that the harness waits for a node.
const (
	readyWithin   = 2 * time.Minute // from the start of a node until /readyz answers 200
	stopWithin    = time.Minute     // from SIGTERM until the exit; the node itself waits up to 10 s for requests
	commandWithin = 2 * time.Minute // for one command
)

// Node is one Holdfast process, or only its data folder while the process is not running.
type Node struct {
	Name string // for messages: node1, node2, ...
	Dir  string // the data folder

	tb      testing.TB
	http    *http.Client
	args    []string // flags of `holdfast run`, the same at every start
	pinning string   // host:port
	s3      string
	console string
	admin   string // host:port
	log     *tail
	run     *running // shared by all copies that As returns

	// The following fields are set only if the nodes of the cluster are Apart.
	network *network
	at      int        // number of the node in network
	inside  *namespace // namespace in which the process runs
}

// running has what differs between the starts of a node.
type running struct {
	env  []string // environment of the next start
	path string   // path of the program for the next start; empty means the program under test
	proc *process // the process that was started last; nil before the first start
}

// As returns the same node for a subtest, so that errors fail the subtest and not its parent.
func (n *Node) As(tb testing.TB) *Node {
	other := *n
	other.tb = tb
	return &other
}

// environment returns the environment of a child process: PATH, HOME=dir, TMPDIR and extra. It does
// not pass on the HOLDFAST_ variables of the test, because the program refuses variables of this
// kind that it does not know.
func environment(dir string, extra []string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir()}, extra...)
}

// start starts the process of the node and does not wait until it is ready.
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

// errEnded means that a process has ended although it should be running.
var errEnded = errors.New("the process ended")

// WaitReady waits until /readyz answers 200. It returns an error if the process ends or ctx ends.
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

// status sends a GET without a token and returns the status code of the answer.
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

// URL returns the base URL of the pinning API.
func (n *Node) URL() string { return "http://" + n.pinning }

// S3URL returns the base URL of the object gateway.
func (n *Node) S3URL() string { return "http://" + n.s3 }

// ConsoleURL returns the base URL of the web console.
func (n *Node) ConsoleURL() string { return "http://" + n.console }

// AdminURL returns the base URL of metrics and health checks.
func (n *Node) AdminURL() string { return "http://" + n.admin }

// Pid returns the id of the process that was started last.
func (n *Node) Pid() int { return n.run.proc.cmd.Process.Pid }

// Running reports whether the process is running.
func (n *Node) Running() bool { return n.run.proc != nil && !n.run.proc.ended() }

// ExitCode returns the exit code of the process, which must have ended, and -1 if a signal ended it.
func (n *Node) ExitCode() int { return n.run.proc.cmd.ProcessState.ExitCode() }

// SetEnv adds environment variables (NAME=VALUE) for the next starts.
func (n *Node) SetEnv(settings ...string) {
	n.run.env = append(slices.Clone(n.run.env), settings...)
}

// Upgrade makes the next start run the program under test instead of Options.Program.
func (n *Node) Upgrade() { n.run.path = "" }

// AddArgs adds flags for the next starts.
func (n *Node) AddArgs(args ...string) { n.args = append(slices.Clone(n.args), args...) }

// DropArgs removes the last flags, as many as last says, for the next starts.
func (n *Node) DropArgs(last int) { n.args = slices.Clone(n.args[:len(n.args)-last]) }

// ClusterAddr returns the address at which the node listens for members from its next start on, as
// a multiaddr with /p2p/ and the id.
func (n *Node) ClusterAddr(id string) string {
	return n.args[slices.Index(n.args, "--cluster-listen")+1] + "/p2p/" + id
}

// Log returns the end of the log that the node has written.
func (n *Node) Log() string { return n.log.String() }

// Kill ends the process with SIGKILL, so that it cannot clean up.
func (n *Node) Kill() {
	n.tb.Helper()
	if err := n.run.proc.signal(syscall.SIGKILL); err != nil {
		n.tb.Fatal(err)
	}
	<-n.run.proc.done
}

// Pause stops the process with SIGSTOP until Resume, as if the machine hung.
func (n *Node) Pause() {
	n.tb.Helper()
	if err := n.run.proc.signal(syscall.SIGSTOP); err != nil {
		n.tb.Fatal(err)
	}
}

// Resume continues a paused process.
func (n *Node) Resume() {
	n.tb.Helper()
	if err := n.run.proc.signal(syscall.SIGCONT); err != nil {
		n.tb.Fatal(err)
	}
}

// Stop ends the process with SIGTERM. It fails the test unless the process ends in time with exit
// code 0.
func (n *Node) Stop() {
	n.tb.Helper()
	if code := n.End(syscall.SIGTERM); code != 0 {
		n.tb.Fatalf("%s after SIGTERM: exit code %d, want 0\n%s", n.Name, code, n.Log())
	}
}

// End sends a signal to the process, waits until it has ended, and returns the exit code; -1 means
// that the signal killed the process.
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

// Restart starts the process again with the same folder, ports and flags. It does not wait until
// the node is ready.
func (n *Node) Restart() {
	n.tb.Helper()
	if n.Running() {
		n.tb.Fatalf("%s runs already", n.Name)
	}
	if err := n.start(); err != nil {
		n.tb.Fatal(err)
	}
}

// sector is the unit in bytes in which the system reports the disk space of a file.
const sector = 512

// DiskUse returns the disk space of the data folder in bytes. Files may be created and removed
// meanwhile.
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

// Result is the output and the exit code of a command.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run runs the binary with these arguments and this standard input. env is added to the environment
// that all children of the harness have.
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

// runProgram runs a program until it ends and returns its result, without regard to the exit code.
// It returns an error if the program cannot be run or does not end in time.
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

// CLI runs a command of the binary for this node's data folder and returns its standard output. It
// fails the test unless the exit code is 0.
func (n *Node) CLI(args ...string) string {
	n.tb.Helper()
	return n.CLIWithInput("", args...)
}

// CLIWithInput does the same as CLI with this standard input.
func (n *Node) CLIWithInput(stdin string, args ...string) string {
	n.tb.Helper()
	r := n.TryCLI(stdin, args...)
	if r.Code != 0 {
		n.tb.Fatalf("%s: holdfast %s: exit code %d\n%s%s", n.Name, strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// TryCLI runs a command of the binary for this node's data folder, with this standard input, and
// returns its result, without regard to the exit code.
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

// StatusNow returns the same as `holdfast status --json` and refuses unknown fields. It asks the
// operator socket in this node's folder directly, because running the command takes much more
// processor time, which would slow down tests that poll.
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

// Status does the same as StatusNow, and fails the test if there is an error.
func (n *Node) Status() Status {
	n.tb.Helper()
	s, err := n.StatusNow()
	if err != nil {
		n.tb.Fatal(err)
	}
	return s
}

// Get returns the content of a CID as `holdfast get` on this node would print it. Like StatusNow,
// it asks the operator socket directly.
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

// UserKey creates an account and an API key for it. flags are flags of `holdfast key create`.
func (n *Node) UserKey(email string, flags ...string) Key {
	n.tb.Helper()
	n.CLIWithInput("a password of some length\n", "user", "add", email, "--password-stdin")
	return n.Key(email, flags...)
}

// Key creates another API key for an existing account. flags are flags of `holdfast key create`.
func (n *Node) Key(email string, flags ...string) Key {
	n.tb.Helper()
	out := n.CLI(append([]string{"key", "create", "--user", email, "--json"}, flags...)...)
	var k Key
	if err := DecodeStrict([]byte(out), &k); err != nil {
		n.tb.Fatalf("key create: %v in %s", err, out)
	}
	return k
}

// Pins returns a client of this node's pinning API that uses the token.
func (n *Node) Pins(token string) *PinsClient {
	return &PinsClient{Base: n.URL(), Token: token, HTTP: n.http}
}

// Metrics returns the node's Prometheus metrics by their name with labels, such as
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

// Operator is a client of a node's operator socket.
type Operator = client.Client

// NewKey describes an API key to create with an Operator.
type NewKey = client.NewKey

// Operator returns a client of the operator socket in this node's folder, for tests in which
// running a command for each call would take too long. The client is closed at the end of the test.
func (n *Node) Operator() *Operator {
	c := client.New(n.Dir)
	n.tb.Cleanup(c.Close)
	return c
}
