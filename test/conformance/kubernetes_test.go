//go:build conformance

package conformance

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestAServiceOfThisNameInKubernetes promises that a node starts with the environment that Kubernetes gives
// containers beside Services that are called holdfast and holdfast-s3.
func TestAServiceOfThisNameInKubernetes(t *testing.T) {
	t.Parallel() // a node of its own
	c := harness.Start(t, harness.Options{Nodes: 1, Env: []string{
		"HOLDFAST_SERVICE_HOST=10.96.7.7", "HOLDFAST_SERVICE_PORT=9097", "HOLDFAST_SERVICE_PORT_PINNING=9097", "HOLDFAST_SERVICE_PORT_S3_TLS=9000",
		"HOLDFAST_PORT=tcp://10.96.7.7:9097",
		"HOLDFAST_PORT_9097_TCP=tcp://10.96.7.7:9097", "HOLDFAST_PORT_9097_TCP_PROTO=tcp", "HOLDFAST_PORT_9097_TCP_PORT=9097", "HOLDFAST_PORT_9097_TCP_ADDR=10.96.7.7",
		"HOLDFAST_PORT_4001_UDP=udp://10.96.7.7:4001", "HOLDFAST_PORT_4001_UDP_PROTO=udp",
		"HOLDFAST_S3_SERVICE_HOST=10.96.7.8", "HOLDFAST_S3_SERVICE_PORT=9000", "HOLDFAST_S3_PORT=tcp://10.96.7.8:9000", "HOLDFAST_S3_PORT_9000_TCP=tcp://10.96.7.8:9000",
		"KUBERNETES_SERVICE_HOST=10.96.0.1",
	}})
	if s := c.Nodes[0].Status(); s.Leader != s.Node.ID {
		t.Errorf("%+v", s)
	}
}

// TestASettingThatIsMisspeltStopsTheStart promises that a node with an unknown HOLDFAST_ variable does not start and
// names it, although the name looks like one of Kubernetes.
func TestASettingThatIsMisspeltStopsTheStart(t *testing.T) {
	t.Parallel() // processes that end at once
	for _, name := range []string{
		"HOLDFAST_PINNING_LISTN", "HOLDFAST_PORTS", "HOLDFAST_SERVICE", "HOLDFAST_SERVICE_HOSTNAME", "HOLDFAST_SERVICE_PORT_", "HOLDFAST_PORT_9097", "HOLDFAST_PORT_9097_TPC",
		"HOLDFAST_PORT_TCP", "HOLDFAST_PORT_9097_TCP_HOST", "HOLDFAST_PORT_70000_TCP",
	} {
		dir := filepath.Join(t.TempDir(), "node")
		r := harness.Run(t, []string{name + "=tcp://10.96.7.7:9097"}, "", "run", "--data", dir, "--routing", "off")
		if r.Code != 1 || !strings.HasPrefix(r.Stderr, "holdfast: ") || !strings.Contains(r.Stderr, name+": unknown environment variable") {
			t.Errorf("%s: ended with %d: %s", name, r.Code, r.Stderr)
		}
	}
}
