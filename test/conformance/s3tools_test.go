//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// toolTimeout bounds one call of a stock tool.
const toolTimeout = 5 * time.Minute

// What tools send in parts: rclone does so from 200 MiB on, aws above 8 MiB and s3cmd above
// 15 MiB.
const (
	multipartBytes = 40 << 20
	rcloneBytes    = 200 << 20
)

// tool runs a stock S3 program in a folder of its own, with the credentials of one
// account and one node as its endpoint.
type tool struct {
	t    *testing.T
	home string
	env  []string
}

// gateway is an account on a cluster whose node that does not lead is spoken to.
type gateway struct {
	cluster *harness.Cluster
	node    *harness.Node
	key     harness.Key
}

func newGateway(t *testing.T, o harness.Options) gateway {
	t.Helper()
	c := harness.Start(t, o)
	key := c.Leader().UserKey("tools@example.org")
	c.Leader().CLI("user", "quota", "tools@example.org", "unlimited")
	return gateway{cluster: c, node: c.Followers()[0], key: key}
}

func (g gateway) tool(t *testing.T, env ...string) *tool {
	t.Helper()
	home := t.TempDir()
	return &tool{t: t, home: home, env: append([]string{
		"PATH=/usr/bin:/bin:" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + t.TempDir(), "LC_ALL=C.UTF-8",
		"AWS_ACCESS_KEY_ID=" + g.key.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + g.key.SecretAccessKey,
		"AWS_DEFAULT_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
	}, env...)}
}

// run calls a program and returns its output; it has to succeed.
func (x *tool) run(program string, args ...string) string {
	x.t.Helper()
	out, err := x.try(program, args...)
	if err != nil {
		x.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return out
}

func (x *tool) try(program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = x.home, x.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// has fails the test unless the output names everything.
func (x *tool) has(out string, all ...string) {
	x.t.Helper()
	for _, want := range all {
		if !strings.Contains(out, want) {
			x.t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

// file makes a file of random bytes in the tool's folder.
func (x *tool) file(name string, size int) (path string) {
	x.t.Helper()
	path = filepath.Join(x.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		x.t.Fatal(err)
	}
	data := make([]byte, size)
	rand.Read(data)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		x.t.Fatal(err)
	}
	return path
}

// tree makes some files with names that are hard to keep.
func (x *tool) tree() (path string) {
	x.t.Helper()
	for i, name := range []string{
		"a.txt", "sub/b c.txt", "sub/deep/ü+&=%41.bin", "sub/deep/~tilde'quote.bin", "z/empty", "sub/日本語",
	} {
		x.file(filepath.Join("tree", name), []int{10, 70_000, 1 << 20, 3 << 20, 0, 5}[i])
	}
	return filepath.Join(x.home, "tree")
}

// same fails the test unless two files hold the same bytes.
func (x *tool) same(a, b string) {
	x.t.Helper()
	if hashFile(x.t, a) != hashFile(x.t, b) {
		x.t.Errorf("%s and %s differ", a, b)
	}
}

// sameTrees fails the test unless two folders hold the same files.
func (x *tool) sameTrees(a, b string) {
	x.t.Helper()
	if got, want := treeOf(x.t, b), treeOf(x.t, a); got != want {
		x.t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func hashFile(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(data)
}

func treeOf(t *testing.T, root string) string {
	t.Helper()
	var text bytes.Buffer
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		fmt.Fprintf(&text, "%s %x\n", name, hashFile(t, path))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// TestStockS3Tools promises that the S3 programs of Debian 12, and newer ones that are installed, work with their
// default settings against a node that does not lead.
func TestStockS3Tools(t *testing.T) {
	t.Parallel() // the tools of Python mostly start
	g := newGateway(t, harness.Options{})
	t.Run("aws of Debian", func(t *testing.T) { // TestReadme has a short form
		longForm(t)
		t.Parallel()
		testAWS(g.tool(t), "/usr/bin/aws", g.node.S3URL())
	})
	t.Run("newest aws", func(t *testing.T) {
		longForm(t)
		t.Parallel()
		newest, err := exec.LookPath("aws")
		if err != nil || newest == "/usr/bin/aws" {
			t.Skip("no other aws is installed")
		}
		testAWS(g.tool(t, "PYENV_ROOT="+os.Getenv("PYENV_ROOT")), newest, g.node.S3URL())
	})
	t.Run("s3cmd", func(t *testing.T) {
		t.Parallel()
		testS3cmd(g.tool(t), g)
	})
	t.Run("rclone", func(t *testing.T) {
		t.Parallel()
		testRclone(g.tool(t), g)
	})
	t.Run("restic", func(t *testing.T) {
		t.Parallel()
		testRestic(g.tool(t), g)
	})
}

func testAWS(x *tool, program, endpoint string) {
	bucket := "aws" + randomName()
	x.env = append(x.env, "AWS_PAGER=")
	s3 := func(args ...string) string {
		return x.run(program, append([]string{"--endpoint-url", endpoint, "s3"}, args...)...)
	}
	api := func(args ...string) string {
		return x.run(program, append([]string{"--endpoint-url", endpoint, "s3api"}, args...)...)
	}
	url := "s3://" + bucket
	s3("mb", url)
	x.has(s3("ls"), bucket)
	small := x.file("small", 70_000)
	s3("cp", small, url+"/docs/small file.bin")
	x.has(s3("ls", url+"/docs/"), "small file.bin", "70000")
	s3("cp", url+"/docs/small file.bin", "back")
	x.same(small, filepath.Join(x.home, "back"))

	big := x.file("big", multipartBytes)
	s3("cp", "--quiet", big, url+"/big")
	s3("cp", "--quiet", url+"/big", "big.back")
	x.same(big, filepath.Join(x.home, "big.back"))
	s3("cp", "--quiet", url+"/big", url+"/copies/big")
	s3("cp", url+"/docs/small file.bin", url+"/copies/small")
	x.has(s3("ls", "--recursive", url), "copies/big", fmt.Sprint(multipartBytes))

	tree := x.tree()
	s3("sync", "--quiet", tree, url+"/tree")
	if again := s3("sync", tree, url+"/tree"); strings.TrimSpace(again) != "" {
		x.t.Errorf("a second sync found work: %s", again)
	}
	s3("sync", "--quiet", url+"/tree", "tree.back")
	x.sameTrees(tree, filepath.Join(x.home, "tree.back"))

	api("put-object-tagging", "--bucket", bucket, "--key", "big", "--tagging", "TagSet=[{Key=colour,Value=blue}]")
	x.has(api("get-object-tagging", "--bucket", bucket, "--key", "big"), "colour", "blue")
	api("delete-object-tagging", "--bucket", bucket, "--key", "big")
	x.has(api("head-object", "--bucket", bucket, "--key", "big"), fmt.Sprint(multipartBytes))
	x.has(api("get-object", "--bucket", bucket, "--key", "big", "--range", "bytes=100-199", "part"), "bytes 100-199")
	x.has(api("list-objects-v2", "--bucket", bucket, "--prefix", "tree/", "--delimiter", "/"), "CommonPrefixes")

	if out, err := x.try(program, "--endpoint-url", endpoint, "s3", "rb", url); err == nil || !strings.Contains(out, "BucketNotEmpty") {
		x.t.Errorf("a bucket with objects: %v %s", err, out)
	}
	api("delete-objects", "--bucket", bucket, "--delete", "Objects=[{Key=copies/big},{Key=copies/small}]")
	s3("rm", "--quiet", "--recursive", url)
	s3("rb", url)
	if strings.Contains(s3("ls"), bucket) {
		x.t.Error("a deleted bucket is listed")
	}
}

func testS3cmd(x *tool, g gateway) {
	host := strings.TrimPrefix(g.node.S3URL(), "http://")
	bucket := "s3cmd" + randomName()
	s3cmd := func(args ...string) string {
		return x.run("s3cmd", append([]string{
			"--access_key=" + g.key.AccessKeyID, "--secret_key=" + g.key.SecretAccessKey, "--host=" + host, "--host-bucket=" + host,
			"--no-ssl", "--no-progress",
		}, args...)...)
	}
	url := "s3://" + bucket
	s3cmd("mb", url)
	x.has(s3cmd("ls"), bucket)
	small := x.file("small", 70_000)
	s3cmd("put", small, url+"/docs/small file.bin")
	x.has(s3cmd("ls", url+"/docs/"), "small file.bin", "70000")
	s3cmd("get", url+"/docs/small file.bin", "back")
	x.same(small, filepath.Join(x.home, "back"))
	big := x.file("big", multipartBytes)
	s3cmd("put", big, url+"/big")
	s3cmd("get", url+"/big", "big.back")
	x.same(big, filepath.Join(x.home, "big.back"))
	s3cmd("cp", url+"/docs/small file.bin", url+"/copy")
	x.has(s3cmd("info", url+"/copy"), "70000")
	x.has(s3cmd("info", url), bucket)
	tree := x.tree()
	s3cmd("sync", tree+"/", url+"/tree/")
	if out := s3cmd("sync", tree+"/", url+"/tree/"); strings.Contains(out, "upload:") {
		x.t.Errorf("a second sync found work: %s", out)
	}
	if err := os.Mkdir(filepath.Join(x.home, "tree.back"), 0o755); err != nil {
		x.t.Fatal(err)
	}
	s3cmd("sync", url+"/tree/", "tree.back/")
	x.sameTrees(tree, filepath.Join(x.home, "tree.back"))
	s3cmd("del", "--recursive", "--force", url)
	s3cmd("rb", url)
}

func testRclone(x *tool, g gateway) {
	bucket := "rclone" + randomName()
	x.env = append(x.env,
		"RCLONE_CONFIG_H_TYPE=s3", "RCLONE_CONFIG_H_PROVIDER=Other", "RCLONE_CONFIG_H_ENDPOINT="+g.node.S3URL(),
		"RCLONE_CONFIG_H_ACCESS_KEY_ID="+g.key.AccessKeyID, "RCLONE_CONFIG_H_SECRET_ACCESS_KEY="+g.key.SecretAccessKey,
	)
	rclone := func(args ...string) string { return x.run("rclone", args...) }
	at := "h:" + bucket
	rclone("mkdir", at)
	x.has(rclone("lsd", "h:"), bucket)
	small := x.file("small", 70_000)
	rclone("copyto", small, at+"/docs/small file.bin")
	rclone("copyto", at+"/docs/small file.bin", "back")
	x.same(small, filepath.Join(x.home, "back"))
	big := x.file("big", rcloneBytes)
	rclone("copyto", big, at+"/big")
	rclone("copyto", at+"/big", "big.back")
	x.same(big, filepath.Join(x.home, "big.back"))
	rclone("copyto", at+"/docs/small file.bin", at+"/copy")
	tree := x.tree()
	rclone("sync", tree, at+"/tree")
	rclone("check", tree, at+"/tree")
	rclone("sync", at+"/tree", "tree.back")
	x.sameTrees(tree, filepath.Join(x.home, "tree.back"))
	x.has(rclone("lsl", at), "70000", fmt.Sprint(rcloneBytes), "copy")
	rclone("purge", at)
	if strings.Contains(rclone("lsd", "h:"), bucket) {
		x.t.Error("a purged bucket is listed")
	}
}

func testRestic(x *tool, g gateway) {
	x.env = append(x.env, "RESTIC_PASSWORD=correct horse", "RESTIC_REPOSITORY=s3:"+g.node.S3URL()+"/restic"+randomName())
	restic := func(args ...string) string { return x.run("restic", append([]string{"--no-cache"}, args...)...) }
	restic("init")
	tree := x.tree()
	x.file("tree/large", 40<<20)
	restic("backup", tree)
	x.file("tree/second", 100_000)
	restic("backup", tree)
	x.has(restic("check", "--read-data"), "no errors were found")
	restic("restore", "latest", "--target", "restored")
	x.sameTrees(tree, filepath.Join(x.home, "restored", tree))
	restic("forget", "--keep-last", "1", "--prune")
	x.has(restic("check"), "no errors were found")
}

// randomName returns what makes the name of a bucket unique.
func randomName() string {
	var b [5]byte
	rand.Read(b[:])
	return fmt.Sprintf("-%x", b)
}
