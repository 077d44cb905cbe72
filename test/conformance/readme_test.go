//go:build conformance

package conformance

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// newUser makes of README's commands what somebody types into several terminals: a node
// runs in the background, and nothing goes on before it is ready.
const newUser = `set -euo pipefail
ip link set lo up
nodes=()
trap 'kill "${nodes[@]}"; wait' EXIT
holdfast() {
	if [[ $1 != run ]]; then
		command holdfast "$@"
		return
	fi
	command holdfast "$@" >>~/run.log 2>&1 &
	nodes+=($!)
	local data=
	while [[ $1 != --data ]]; do shift; done
	data=$2
	until curl -sf "http://$(command holdfast status --data "$data" --json 2>/dev/null | sed -n 's/.*"pinning": "\([^"]*\)".*/\1/p')/readyz" >/dev/null; do
		kill -0 "${nodes[-1]}" || { cat ~/run.log; exit 1; }
		read -rt 0.2 <> <(:) || :
	done
}
`

// TestReadme promises that the commands of README work as they stand there, from the first node to the first object.
// It is in a network of its own, where the default ports are free.
func TestReadme(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a network namespace takes root")
	}
	t.Parallel()
	script := newUser
	wanted := map[string]bool{"A node": true, "Two more nodes": true, "A pin": true, "An object": true}
	for _, part := range sections(t, "../../README.md") {
		if wanted[part.title] {
			delete(wanted, part.title)
			script += part.blocks[""]
		}
	}
	if len(wanted) > 0 {
		t.Fatalf("README has no parts %v", wanted)
	}
	const build = "make build\nexport PATH=$PWD/bin:$PATH\n"
	if !strings.Contains(script, build) {
		t.Fatalf("README does not build with\n%s", build)
	}
	script = strings.Replace(script, build, "", 1)

	home := t.TempDir()
	at := filepath.Join(home, "holdfast")
	if err := os.CopyFS(filepath.Join(at, "docs"), os.DirFS(filepath.FromSlash("../../docs"))); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.FromSlash("../../README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "README.md"), readme, 0o600); err != nil {
		t.Fatal(err)
	}
	// Debian's aws wants it so, as README says.
	script = strings.Replace(script, "\naws ", "\naws() { command aws --endpoint-url \"$AWS_ENDPOINT_URL\" \"$@\"; }\naws ", 1)
	ctx, cancel := context.WithTimeout(t.Context(), toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--net", "bash", "-c", script)
	cmd.Dir = at
	cmd.Env = []string{
		"HOME=" + home, "PATH=" + filepath.Dir(harness.Binary(t)) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
		"AWS_EC2_METADATA_DISABLED=true", "AWS_PAGER=",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(home, "run.log"))
		t.Fatalf("%v\n%s\nnodes:\n%s", err, out, log)
	}
	for _, wrong := range []string{`"error"`, "<Error>"} {
		if strings.Contains(string(out), wrong) {
			t.Errorf("%s in\n%s", wrong, out)
		}
	}
	for _, want := range []string{`"name":"first"`, "# Clients of the pinning API", "upload: docs/"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	copied, err := os.ReadFile(filepath.Join(at, "copy.md"))
	if err != nil || string(copied) != string(readme) {
		t.Errorf("what was read back are %d other bytes: %v", len(copied), err)
	}
}
