//go:build conformance

// This file is the first of the package, since its test takes longest and the tests run in the order of files.

package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// section is a part of a page: its title, and the blocks of code in it by their language.
type section struct {
	title  string
	blocks map[string]string // those of one language together
}

// sections reads the parts of a page of documentation.
func sections(t *testing.T, path string) (all []section) {
	t.Helper()
	page, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	language, inside := "", false
	for line := range strings.Lines(string(page)) {
		switch title, isTitle := strings.CutPrefix(line, "## "); {
		case strings.HasPrefix(line, "```"):
			inside = !inside
			language = strings.TrimSpace(strings.TrimPrefix(line, "```"))
		case inside && len(all) > 0:
			all[len(all)-1].blocks[language] += line
		case isTitle:
			all = append(all, section{title: strings.TrimSpace(title), blocks: map[string]string{}})
		}
	}
	return all
}

// ownSettings gives the reader settings of its own for every tool, and returns what checks
// that they are as they were.
func (x *tool) ownSettings() (check func()) {
	x.t.Helper()
	const text = "# of the reader\n"
	files := []string{".aws/config", ".aws/credentials", ".config/rclone/rclone.conf", ".rclone.conf", ".s3cfg", ".config/s3cfg", ".mc/config.json"}
	for _, name := range files {
		path := filepath.Join(x.home, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			x.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			x.t.Fatal(err)
		}
	}
	return func() {
		for _, name := range files {
			if got, err := os.ReadFile(filepath.Join(x.home, filepath.FromSlash(name))); err != nil || string(got) != text {
				x.t.Errorf("the page changed the reader's %s: %q, %v", name, got, err)
			}
		}
	}
}

// TestTheToolsPage promises that the commands of docs/tools.md work, tool by tool, as a new user runs them. They run
// in an empty home, with no more than the four variables that the page begins with.
func TestTheToolsPage(t *testing.T) {
	longForm(t)
	t.Parallel() // a cluster of its own
	g := newGateway(t, harness.Options{})
	bucketOf := regexp.MustCompile(`from-[a-z0-9]+`)
	ran := 0
	for _, part := range sections(t, "../../docs/tools.md") {
		program, script := "bash", "set -euo pipefail\n"+part.blocks["sh"]
		if part.blocks["python"] != "" {
			program, script = "python3", part.blocks["python"]
		} else if part.blocks["sh"] == "" {
			continue // code of another language: TestStockS3SDKs has the same
		}
		ran++
		t.Run(part.title, func(t *testing.T) {
			x := g.tool(t, "ENDPOINT="+g.node.S3URL(), "TOKEN="+g.key.Token, "AWS_PAGER=")
			switch {
			case part.blocks["python"] != "":
				x.env = append(x.env, "PATH="+os.Getenv("PATH"), "PYENV_ROOT="+os.Getenv("PYENV_ROOT"))
				if _, err := x.try(program, "-c", "import boto3"); err != nil {
					t.Skip("boto3 is not installed")
				}
			case strings.HasPrefix(part.title, "aws, "):
				if newest, err := exec.LookPath("aws"); err != nil || newest == "/usr/bin/aws" {
					t.Skip("no other aws than that of Debian is installed")
				}
				x.env = append(x.env, "PATH="+os.Getenv("PATH"), "PYENV_ROOT="+os.Getenv("PYENV_ROOT"))
			}
			x.file("a.txt", 70_000)
			x.tree()
			own := x.ownSettings()
			defer own()
			x.run(program, "-c", script)
			bucket := bucketOf.FindString(script)
			page, err := g.sdk(g.cluster.Leader()).ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(bucket)})
			if err != nil || len(page.Contents) == 0 {
				t.Errorf("bucket %q is empty afterwards: %v", bucket, err)
			}
		})
	}
	if ran < 7 {
		t.Errorf("%d parts of the page were run", ran)
	}
}
