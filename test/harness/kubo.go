package harness

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// kuboVariable is the environment variable with the path of Kubo's program ipfs. If it is not set,
// the harness uses bin/tools/ipfs, which `make bin/tools/ipfs` builds.
const kuboVariable = "HOLDFAST_KUBO_BIN"

// Kubo is a running node of Kubo, the implementation of IPFS that most people run, with its command
// line.
type Kubo struct {
	Addrs []string

	tb   testing.TB
	path string
	dir  string // folder of the node, which is also HOME for the program
	log  *tail
	proc *process
}

// StartKubo starts a node with Kubo's own profile for tests: it listens on loopback and knows no
// other peers. The node is ended at the end of the test. The test fails if Kubo is not installed.
func StartKubo(tb testing.TB) *Kubo {
	tb.Helper()
	k := &Kubo{tb: tb, path: kuboProgram(tb), dir: tb.TempDir(), log: &tail{}}
	k.Do("init", "--profile=test")
	k.start()
	tb.Cleanup(func() {
		k.proc.end(tb)
		if tb.Failed() {
			tb.Logf("--- end of the log of kubo\n%s", k.log)
		}
	})
	return k
}

func kuboProgram(tb testing.TB) string {
	tb.Helper()
	if os.Getenv(kuboVariable) != "" {
		return binary(tb, kuboVariable)
	}
	root, err := moduleRoot()
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(root, "bin", "tools", "ipfs")
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("no Kubo: %v; `make bin/tools/ipfs` builds it, or %s names one", err, kuboVariable)
	}
	return path
}

// environment returns the environment of the program ipfs, which tells it where the folder of the
// node is.
func (k *Kubo) environment() []string {
	return []string{"IPFS_PATH=" + filepath.Join(k.dir, "repo"), "IPFS_TELEMETRY=off"}
}

// start runs the daemon and waits until it answers.
func (k *Kubo) start() {
	k.tb.Helper()
	cmd := exec.Command(k.path, "daemon")
	cmd.Env, cmd.Dir = environment(k.dir, k.environment()), k.dir
	cmd.Stdout, cmd.Stderr = k.log, k.log
	var err error
	if k.proc, err = startProcess(cmd, nil); err != nil {
		k.tb.Fatal(err)
	}
	// A command before this file is there would not ask the daemon and keep it from its repository.
	api := filepath.Join(k.dir, "repo", "api")
	Eventually(k.tb, readyLineWithin, "kubo answers", func() (bool, error) {
		if k.proc.ended() {
			k.tb.Fatalf("kubo ended\n%s", k.log)
		}
		if _, err := os.Stat(api); errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		out, err := k.Try("", "id", "--format=<addrs>")
		k.Addrs = strings.Fields(out)
		return len(k.Addrs) > 0, err
	})
}

// Restart ends the daemon and starts it again, so that changed settings take effect.
func (k *Kubo) Restart() {
	k.tb.Helper()
	k.proc.end(k.tb)
	if err := os.Remove(filepath.Join(k.dir, "repo", "api")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.tb.Fatal(err)
	}
	k.start()
}

// Try runs the program ipfs with these arguments and this standard input, and returns its standard
// output.
func (k *Kubo) Try(stdin string, args ...string) (string, error) {
	r, err := runProgram(foreignTimeout, k.path, k.dir, k.environment(), stdin, args)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("ipfs %s: exit code %d: %s", strings.Join(args, " "), r.Code, strings.TrimSpace(r.Stderr))
	}
	return r.Stdout, err
}

// Do runs the program ipfs as Try does, without standard input, and fails the test if it fails. It
// returns the output without white space at both ends.
func (k *Kubo) Do(args ...string) string {
	k.tb.Helper()
	out, err := k.Try("", args...)
	if err != nil {
		k.tb.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// Origins returns the multiaddrs of the node, with /p2p/.
func (k *Kubo) Origins() []string { return k.Addrs }

// AddRandom adds count random files of size bytes with `ipfs add`.
func (k *Kubo) AddRandom(count, size int) []Offered {
	k.tb.Helper()
	files := make([]Offered, count)
	for i := range files {
		data := make([]byte, size)
		_, _ = rand.Read(data) // never fails
		out, err := k.Try(string(data), "add", "--quieter")
		if err != nil {
			k.tb.Fatal(err)
		}
		files[i] = fileOf(strings.TrimSpace(out), data)
	}
	return files
}

// Get connects to the peers at the multiaddrs in from and runs `ipfs get`. It returns the path of
// the file or folder that ipfs has written.
func (k *Kubo) Get(cid string, from []string) (path string, err error) {
	if _, err := k.Try("", append([]string{"swarm", "connect"}, from...)...); err != nil {
		return "", err
	}
	path = filepath.Join(k.tb.TempDir(), "got")
	_, err = k.Try("", "get", "--output="+path, cid)
	return path, err
}

// Fetch does the same as Get for a file and returns the description of its content.
func (k *Kubo) Fetch(cid string, from []string) (Offered, error) {
	path, err := k.Get(cid, from)
	if err != nil {
		return Offered{}, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Offered{}, fmt.Errorf("kubo: %w", err)
	}
	return fileOf(cid, data), nil
}

// Close ends the process of the node.
func (k *Kubo) Close() { k.proc.end(k.tb) }
