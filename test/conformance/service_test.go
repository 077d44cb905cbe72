//go:build conformance

package conformance

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestAServiceManagerHearsOfTheNode promises what deploy/packages/holdfast.service relies on: by the protocol of
// sd_notify(3) the node says that it serves, whether it is ready and why not, that its watchdog need not bite, and that
// it stops. A node that waits for others says so.
func TestAServiceManagerHearsOfTheNode(t *testing.T) {
	t.Parallel() // it mostly waits
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.Close() })
	if err := manager.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	hears := func(lines ...string) (said []string) {
		t.Helper()
		message := make([]byte, 4096)
		for len(lines) > 0 {
			n, err := manager.Read(message)
			if err != nil {
				t.Fatalf("%v instead of %q after %q", err, lines, said)
			}
			for line := range strings.Lines(string(message[:n])) {
				line = strings.TrimSuffix(line, "\n")
				said = append(said, line)
				lines = slices.DeleteFunc(lines, func(wanted string) bool { return strings.HasPrefix(line, wanted) })
			}
		}
		return said
	}
	c := harness.Start(t, harness.Options{Nodes: 2})
	n := c.Nodes[1]
	n.Stop()
	n.SetEnv("NOTIFY_SOCKET="+path, "WATCHDOG_USEC=400000")
	n.Restart()
	said := hears("READY=1", "STATUS=ready", "WATCHDOG=1")
	if at := slices.Index(said, "STATUS=ready"); at < slices.Index(said, "READY=1") {
		t.Errorf("ready before it serves: %q", said)
	}
	c.Nodes[0].Kill()
	hears("STATUS=not ready: ", "WATCHDOG=1")
	n.Stop()
	hears("STOPPING=1")
}
