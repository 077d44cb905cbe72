//go:build conformance

package conformance

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lukechampine.com/blake3"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// clientResident bounds the resident memory of a client command, whatever it transfers.
const clientResident = 100 << 20

// clientOf runs client commands as an account, with all nodes of a cluster as endpoints.
type clientOf struct {
	*objects

	home string
	env  []string
}

// newClient has a bucket and an identity.
func newClient(t *testing.T, c *harness.Cluster, bucket string) *clientOf {
	t.Helper()
	o := newObjects(t, c, bucket+"@example.org")
	c.Leader().CLI("user", "quota", bucket+"@example.org", "1TB")
	home := t.TempDir()
	var endpoints []string
	for _, n := range c.Nodes {
		endpoints = append(endpoints, n.S3URL())
	}
	cl := &clientOf{objects: o, home: home, env: []string{
		"HOME=" + home, "HOLDFAST_ENDPOINT=" + strings.Join(endpoints, ","), "HOLDFAST_TOKEN=" + o.token,
		"HOLDFAST_IDENTITY=" + filepath.Join(home, "identity"), "HOLDFAST_IDENTITY_COMMAND=echo correct horse",
	}}
	overwrite(t, filepath.Join(home, "passphrase"), []byte("correct horse\n"))
	cl.run("keygen", filepath.Join(home, "identity"), "--passphrase-file", filepath.Join(home, "passphrase"))
	o.ok(http.StatusOK, http.MethodPut, "/"+bucket, nil)
	return cl
}

// run wants exit code 0.
func (c *clientOf) run(args ...string) string {
	c.t.Helper()
	r := c.try("", args...)
	if r.Code != 0 {
		c.t.Fatalf("holdfast %q: exit code %d, %s", args, r.Code, r.Stderr)
	}
	return r.Stdout
}

func (c *clientOf) try(stdin string, args ...string) harness.Result {
	c.t.Helper()
	return harness.Run(c.t, c.env, stdin, args...)
}

// start begins a command that the caller ends. Its folder is home.
func (c *clientOf) start(args ...string) (*exec.Cmd, *bytes.Buffer) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), harness.Binary(c.t), args...)
	cmd.Dir = c.home
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, c.env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	return cmd, &errs
}

// bounded runs a command that must not need more memory than clientResident.
func (c *clientOf) bounded(args ...string) {
	c.t.Helper()
	cmd, errs := c.start(args...)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var used int64
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C: // the figure only grows; rusage would have that of this process, before exec
			used = max(used, residentMost(cmd.Process.Pid))
			continue
		case err := <-ended:
			if err != nil {
				c.t.Fatalf("holdfast %q: %v, %s", args, err, errs)
			}
		}
		break
	}
	if c.t.Logf("holdfast %q: %d MiB were resident", args, used>>20); used == 0 || used >= clientResident {
		c.t.Errorf("holdfast %q: %d MiB were resident", args, used>>20)
	}
}

// residentMost returns the most memory in bytes that a process had resident, or 0 if it has ended.
func residentMost(pid int) (bytes int64) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
		_, _ = fmt.Sscan(rest, &bytes)
	}
	return bytes << 10
}

// filesOf returns the content of all files below a folder by name.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files[name] = string(read(t, path))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// someFiles fills a folder with small files in folders, and some large ones.
func someFiles(t *testing.T, dir string, small int, large ...int) map[string]string {
	t.Helper()
	for i := range small {
		path := filepath.Join(dir, fmt.Sprintf("folder %d", i%7), fmt.Sprintf("ü+%%20 %d.txt", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		overwrite(t, path, harness.RandomBytes(i*13%4096))
	}
	for i, size := range large {
		overwrite(t, filepath.Join(dir, fmt.Sprint("large", i)), harness.RandomBytes(size))
	}
	return filesOf(t, dir)
}

// noUploads promises that no upload is open in a bucket.
func (c *clientOf) noUploads(bucket string) {
	c.t.Helper()
	if r := c.ok(http.StatusOK, http.MethodGet, "/"+bucket+"?uploads", nil); bytes.Contains(r.Body, []byte("<UploadId>")) {
		c.t.Errorf("uploads are open: %s", r.Body)
	}
}

// TestClientCommands promises that put, get, ls, rm and sync do what their help says, with and
// without encryption, through any node.
func TestClientCommands(t *testing.T) {
	t.Parallel() // a cluster of its own
	cluster := harness.Start(t, harness.Options{})
	for _, encrypt := range []bool{false, true} {
		t.Run(fmt.Sprint("encrypt ", encrypt), func(t *testing.T) {
			bucket := fmt.Sprintf("commands-%t", encrypt)
			c := newClient(t, cluster.As(t), bucket)
			run := func(args ...string) string {
				t.Helper()
				if encrypt {
					args = append(args, "--encrypt")
				}
				return c.run(args...)
			}
			dir := t.TempDir()
			data := harness.RandomBytes(20<<20 + 7)
			path, back := filepath.Join(dir, "file"), filepath.Join(dir, "back")
			overwrite(t, path, data)
			run("put", path, "s3://"+bucket+"/some/folder/")
			for _, flags := range [][]string{nil, {"--verify"}} {
				run(append([]string{"get", "s3://" + bucket + "/some/folder/file", back}, flags...)...)
				if !bytes.Equal(read(t, back), data) {
					t.Errorf("get %q: other bytes", flags)
				}
				if out := run(append([]string{"get", "s3://" + bucket + "/some/folder/file", "-"}, flags...)...); out != string(data) {
					t.Errorf("get %q to standard output: other bytes", flags)
				}
			}
			if out := run("ls", "s3://"+bucket+"/some/"); !strings.HasSuffix(strings.TrimSpace(out), "some/folder/") || strings.Count(out, "\n") != 1 {
				t.Errorf("ls: %q", out)
			}
			if out := run("ls", "-r", "s3://"+bucket, "--json"); !strings.Contains(out, `"key": "some/folder/file"`) || !strings.Contains(out, fmt.Sprintf(`"size": %d`, len(data))) {
				t.Errorf("ls --json: %q", out)
			}
			run("rm", "s3://"+bucket+"/some/folder/file")
			if r := c.try("", "get", "s3://"+bucket+"/some/folder/file", "-"); r.Code != 1 || !oneLine(r.Stderr) || !strings.Contains(r.Stderr, "NoSuchKey") {
				t.Errorf("%+v", r)
			}
			from, to := t.TempDir(), t.TempDir()
			files := someFiles(t, from, 60, 17<<20)
			if out := run("sync", from, "s3://"+bucket+"/p"); !strings.HasPrefix(out, "copied 61 files") {
				t.Errorf("sync: %q", out)
			}
			if out := run("sync", from, "s3://"+bucket+"/p"); !strings.Contains(out, "unchanged 61,") {
				t.Errorf("sync again: %q", out)
			}
			run("sync", "--verify", "s3://"+bucket+"/p", to)
			if got := filesOf(t, to); !maps.Equal(got, files) {
				t.Errorf("sync back: %d files of %d, or other bytes", len(got), len(files))
			}
			if err := os.RemoveAll(filepath.Join(from, "folder 3")); err != nil {
				t.Fatal(err)
			}
			run("sync", "--delete", from, "s3://"+bucket+"/p")
			run("sync", "--delete", "s3://"+bucket+"/p", to)
			if got, want := filesOf(t, to), filesOf(t, from); !maps.Equal(got, want) {
				t.Errorf("after a deletion: %d files, want %d", len(got), len(want))
			}
			if left, err := os.ReadDir(filepath.Join(to, "folder 3")); err == nil {
				t.Errorf("the folder that was removed: %v", left)
			}
			c.noUploads(bucket)
		})
	}
	t.Run("a hash that the caller knows", func(t *testing.T) {
		c := newClient(t, cluster.As(t), "known")
		c.ok(http.StatusOK, http.MethodPut, "/known/key", []byte("hello"))
		sum := blake3.Sum256([]byte("hello"))
		if out := c.run("get", "--blake3", hex.EncodeToString(sum[:]), "s3://known/key", "-"); out != "hello" {
			t.Errorf("%q", out)
		}
		sum[0] ^= 1
		if r := c.try("", "get", "--blake3", hex.EncodeToString(sum[:]), "s3://known/key", "-"); r.Code != 1 || r.Stdout != "" || !strings.Contains(r.Stderr, "http://127.0.0.1") {
			t.Errorf("%+v", r)
		}
	})
}

// TestASyncOutlivesANode promises that a sync goes on when a node is killed in its middle.
func TestASyncOutlivesANode(t *testing.T) {
	longForm(t)
	t.Parallel() // a cluster of its own
	cluster := harness.Start(t, harness.Options{})
	for _, flags := range [][]string{nil, {"--encrypt"}} {
		c := newClient(t, cluster, fmt.Sprint("outlives", len(flags)))
		bucket := fmt.Sprint("outlives", len(flags))
		from, to := t.TempDir(), t.TempDir()
		files := someFiles(t, from, 400, 30<<20, 20<<20)
		victim := cluster.Followers()[0]
		cmd, errs := c.start(append([]string{"sync", from, "s3://" + bucket}, flags...)...)
		harness.Eventually(t, time.Minute, "objects arrive", func() (bool, error) {
			r, err := c.tryOn(cluster.Leader(), http.MethodGet, "/"+bucket+"?list-type=2&max-keys=50", nil)
			return err == nil && bytes.Count(r.Body, []byte("<Key>")) >= 30, err
		})
		victim.Kill()
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v: %s", err, errs)
		}
		c.run(append([]string{"sync", "s3://" + bucket, to}, flags...)...)
		if got := filesOf(t, to); !maps.Equal(got, files) {
			t.Errorf("%q: %d files of %d, or other bytes", flags, len(got), len(files))
		}
		c.noUploads(bucket)
		victim.Restart()
		cluster.Settle()
	}
}

// TestAKilledSyncIsRepeated promises that a sync that is killed at any moment ends with equal
// folders and without open uploads when it runs again.
func TestAKilledSyncIsRepeated(t *testing.T) {
	longForm(t)
	t.Parallel() // a cluster of its own
	rounds := 3
	if *longFlag {
		rounds = 20
	}
	cluster := harness.Start(t, harness.Options{})
	c := newClient(t, cluster, "killed")
	from, to := t.TempDir(), t.TempDir()
	someFiles(t, from, 150, 40<<20, 17<<20)
	began := time.Now()
	c.run("sync", from, "s3://killed/measure")
	takes := time.Since(began)
	for round := range rounds {
		var flags []string
		if round%2 == 1 {
			flags = []string{"--encrypt"}
		}
		target := fmt.Sprint("s3://killed/", round)
		killed := func(args ...string) {
			cmd, _ := c.start(append(args, flags...)...)
			timer := time.AfterFunc(rand.N(takes), func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait() // killed, or just done
			timer.Stop()
		}
		killed("sync", from, target)
		killed("sync", "--delete", from, target)
		overwrite(t, filepath.Join(from, "large1"), harness.RandomBytes(17<<20)) // its upload cannot go on
		c.run(append([]string{"sync", "--delete", from, target}, flags...)...)
		c.noUploads("killed")
		killed("sync", target, to)
		c.run(append([]string{"sync", "--delete", target, to}, flags...)...)
		if got, want := filesOf(t, to), filesOf(t, from); !maps.Equal(got, want) {
			t.Errorf("round %d: %d files, want %d, or other bytes", round, len(got), len(want))
		}
	}
	if left, err := filepath.Glob(filepath.Join(c.home, ".local", "state", "holdfast", "sync", "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("journals are left: %q, %v", left, err)
	}
}

// TestClientMemory promises that the memory of a command does not depend on the size of a file.
func TestClientMemory(t *testing.T) {
	longForm(t)
	t.Parallel() // a cluster of its own
	size := int64(256 << 20)
	if *longFlag {
		size = 5 << 30
	}
	cluster := harness.Start(t, harness.Options{Replication: 1})
	c := newClient(t, cluster, "memory")
	path, back := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "back")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := blake3.New(32, nil)
	for seed := range uint64(size >> 20) {
		piece := harness.BytesOf(seed, 1<<20)
		_, _ = sum.Write(piece)
		if _, err := f.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--encrypt"}} {
		key := "s3://memory/file" + strings.Join(flags, "")
		c.bounded(append([]string{"put", path, key}, flags...)...)
		c.bounded(append([]string{"get", "--verify", key, back}, flags...)...)
		got := blake3.New(32, nil)
		in, err := os.Open(back)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := in.WriteTo(got); err != nil || n != size || !bytes.Equal(got.Sum(nil), sum.Sum(nil)) {
			t.Errorf("%q: %d bytes, %v, or another hash", flags, n, err)
		}
		_ = in.Close()
		c.run(append([]string{"rm", key}, flags...)...)
	}
}
