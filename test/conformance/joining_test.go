//go:build conformance

package conformance

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestANodeThatJoinsAnswersAndEnds promises that a node that cannot join yet answers about its health and refuses
// requests, and that SIGTERM ends it as it ends any node. It joins where nobody listens.
func TestANodeThatJoinsAnswersAndEnds(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Nodes: 1})
	member := c.Nodes[0].Status().Node
	port := strconv.Itoa(harness.FreePort(t)) // where nobody listens
	n := c.Prepare("--join", "/ip4/127.0.0.1/tcp/"+port+"/p2p/"+member.ID, "--secret-file", c.SecretFile())
	n.Restart()
	for _, tc := range []struct {
		base, path string
		status     int
		says       string
	}{
		{n.AdminURL(), "/healthz", http.StatusOK, "alive"},
		{n.AdminURL(), "/readyz", http.StatusServiceUnavailable, "has not joined"},
		{n.URL(), "/healthz", http.StatusOK, "alive"},
		{n.URL(), "/readyz", http.StatusServiceUnavailable, "has not joined"},
		{n.S3URL(), "/healthz", http.StatusOK, "alive"},
		{n.S3URL(), "/readyz", http.StatusServiceUnavailable, "has not joined"},
		{n.URL(), "/pins", http.StatusServiceUnavailable, `"reason":"SERVICE_UNAVAILABLE"`},
	} {
		client := harness.PinsClient{Base: tc.base, HTTP: &http.Client{Timeout: time.Minute}}
		var got harness.Response
		harness.Eventually(t, 2*time.Minute, "the node listens", func() (bool, error) {
			var err error
			got, err = client.Do(t.Context(), http.MethodGet, tc.path, nil, nil)
			if errors.Is(err, syscall.ECONNREFUSED) {
				return false, err
			}
			return true, nil
		})
		if got.Status != tc.status || !strings.Contains(string(got.Body), tc.says) {
			t.Errorf("%s%s while joining: %d %s", tc.base, tc.path, got.Status, got.Body)
		}
	}
	if r := n.TryCLI("", "status"); r.Code != 1 || !strings.Contains(r.Stderr, "has not joined") {
		t.Errorf("status while joining: exit code %d, %s", r.Code, r.Stderr)
	}
	n.Stop() // wants exit code 0
	if strings.Contains(n.Log(), "no member could be joined") {
		t.Errorf("the log names a reason that is none: %s", n.Log())
	}
}
