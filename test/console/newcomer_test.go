//go:build conformance

package console

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// run runs lines that were copied from a page, as a person does who has nothing but the programs.
func run(t *testing.T, program []string, lines string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program[0], append(program[1:], lines)...)
	home := t.TempDir()
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin:" + os.Getenv("PATH")} // Debian's aws first
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v: %s", lines, err, out)
	}
	return string(out)
}

// TestFromThePrintedLinkToAFriend: a person has nothing but the link that an empty node prints. By the console alone the person
// becomes the administrator, stores a file, and gives a friend a link to it; each configuration beside the new key, copied
// into a shell, reaches the service.
func TestFromThePrintedLinkToAFriend(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	c := harness.Start(t, harness.Options{Nodes: 1, Replication: 1})
	p := b.open(t, c.Nodes[0].ConsoleURL())
	_, link, _ := strings.Cut(c.Nodes[0].Log(), p.base+"/setup?t=")
	link, _, _ = strings.Cut(link, "\n")
	p.visit("/setup?t=" + strings.TrimSpace(link))
	p.shows("Set up this cluster")
	p.enter(`[name=email]`, founder)
	p.enter(`[name=password]`, password)
	p.enter(`[name=again]`, password)
	p.press("Set up")
	p.shows("Nothing is pinned yet")
	p.bucket("holiday")
	p.choose(`[name=file]`, write(t, t.TempDir(), "postcard.txt", []byte("Wish you were here.")))
	p.upload("1 stored.")
	p.follow("API keys")
	p.shows("There is no key yet")
	p.enter(`[name=name]`, "first")
	p.press("Make key")
	p.shows("The new key")
	shell := []string{"bash", "-ec"}
	for _, tc := range []struct {
		name    string
		program []string
		says    string
	}{
		{"AWS CLI", shell, "holiday"},
		{"rclone", shell, "holiday"},
		{"s3cmd", shell, "s3://holiday"},
		{"curl", shell, `"count":0`},
		{"JavaScript", []string{"node", "--input-type=module", "-e"}, "count: 0"},
	} {
		lines := ask(p, chromedp.Evaluate[string](`[...document.querySelectorAll('.configurations details')].find(d => d.querySelector('summary').textContent === `+quoted(tc.name)+`).querySelector('pre').textContent`))
		if out := run(t, tc.program, lines); !strings.Contains(out, tc.says) {
			t.Errorf("%s prints %q", tc.name, out)
		}
	}
	p.follow("Buckets")
	p.follow("holiday")
	p.follow("postcard.txt")
	p.shows("Make download link")
	p.press("Make download link")
	p.shows("Everybody who has this link")
	answer, err := http.Get(p.text(`#share .value code`)) //nolint:noctx // a friend, who has nothing else
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "Wish you were here." {
		t.Errorf("the friend gets %d %q, %v", answer.StatusCode, body, err)
	}
}
