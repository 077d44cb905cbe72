//go:build conformance

package conformance

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Of what a log may have.
const (
	// mostRepeats is how many lines with one message a node writes in the time of a test.
	mostRepeats = 12
	// putsAfterDeath is how many objects are put after a node has died.
	putsAfterDeath = 600
)

var (
	loud = regexp.MustCompile(`level=(WARN|ERROR)`)
	said = regexp.MustCompile(`level=\w+ msg=("(?:[^"\\]|\\.)*"|\S+)`)
)

// loudLines returns the lines of a node's log that could wake somebody.
func loudLines(n *harness.Node) (lines []string) {
	for line := range strings.Lines(n.Log()) {
		if loud.MatchString(line) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// TestNothingToWorryAboutIsNoWarning promises that three nodes log no warning while they start, join, write, restart
// one after the other, and stop.
func TestNothingToWorryAboutIsNoWarning(t *testing.T) {
	longForm(t)
	c := harness.Start(t, harness.Options{})
	s := newService(t, c, "quiet@example.org")
	putObjects(t, c.Nodes, s.token, 30)
	for _, n := range c.Nodes {
		n.Stop()
		putObjects(t, c.Live(), s.token, 3)
		n.Restart()
		if err := n.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Settle()
	}
	for _, n := range c.Nodes {
		n.Stop()
		if log := n.Log(); !strings.Contains(log, `msg=stopped reason="terminated signal received"`) {
			t.Errorf("%s does not say why it stopped:\n%s", n.Name, log)
		}
	}
	for _, n := range c.Nodes {
		for _, line := range loudLines(n) {
			t.Errorf("%s: %s", n.Name, line)
		}
	}
}

// TestADeadNodeIsSaidOnce promises that the other nodes warn once of a node that was killed under a load of writes,
// and repeat no line for every object.
func TestADeadNodeIsSaidOnce(t *testing.T) {
	longForm(t)
	c := harness.Start(t, harness.Options{LogBytes: 8 << 20})
	s := newService(t, c, "load@example.org")
	dead := c.Followers()[0]
	id := dead.Status().Node.ID
	putObjects(t, c.Nodes, s.token, 30)
	dead.Kill()
	live := c.Live()
	putObjects(t, live, s.token, putsAfterDeath)
	for _, n := range live {
		harness.Eventually(t, time.Minute, n.Name+" warns of the dead node", func() (bool, error) {
			return strings.Contains(n.Log(), `level=WARN msg="member does not answer" node=`+id), nil
		})
		count := map[string]int{}
		for line := range strings.Lines(n.Log()) {
			if m := said.FindString(line); m != "" {
				count[m]++
			}
		}
		for m, times := range count {
			if times > mostRepeats {
				t.Errorf("%s says %d times: %s", n.Name, times, m)
			}
		}
		if times := count[`level=WARN msg="member does not answer"`]; times != 1 {
			t.Errorf("%s warns %d times", n.Name, times)
		}
	}
	dead.Restart()
	for _, n := range live {
		harness.Eventually(t, time.Minute, n.Name+" says that it is back", func() (bool, error) {
			return strings.Contains(n.Log(), `level=INFO msg="member is back" node=`+id), nil
		})
	}
}

// TestTwoVotesAreWarnedOf promises that a cluster of two says in its log, in status and on the board of the node that
// joined that it needs both votes, and who is missing when one has gone.
func TestTwoVotesAreWarnedOf(t *testing.T) {
	longForm(t)
	c := harness.Start(t, harness.Options{Nodes: 2})
	// The board comes after the node is ready.
	harness.Eventually(t, time.Minute, "the node that joined says on its board that both votes are needed", func() (bool, error) {
		return strings.Contains(c.Nodes[1].Log(), "warning  the cluster has two votes and needs both"), nil
	})
	for _, n := range c.Nodes {
		if r := n.TryCLI("", "status"); r.Code != 0 || !strings.Contains(r.Stdout, "\nwarning  the cluster has two votes") {
			t.Errorf("%s: status ended with %d:\n%s", n.Name, r.Code, r.Stdout)
		}
		harness.Eventually(t, time.Minute, n.Name+" warns", func() (bool, error) {
			return strings.Contains(n.Log(), `level=WARN msg="the cluster has two votes`), nil
		})
	}
	c.Nodes[1].Kill()
	first := c.Nodes[0]
	// At once, when a leader would still take a proposal into its log and could not say what becomes of it.
	if r := first.TryCLI("", "user", "add", "early@example.org"); r.Code != 1 || !strings.Contains(r.Stderr, "nothing was written") {
		t.Errorf("user add ended with %d: %s", r.Code, r.Stderr)
	}
	harness.Eventually(t, time.Minute, "status says that nothing can be written, and who is missing", func() (bool, error) {
		r := first.TryCLI("", "status")
		ok := r.Code == 1 && strings.Contains(r.Stdout, "cannot write  2 of 2 votes are needed and 1 is here; missing: ") && strings.HasPrefix(r.Stdout, "cluster ")
		return ok, fmt.Errorf("code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	})
	if r := first.TryCLI("a password of some length\n", "user", "add", "x@example.org", "--password-stdin"); r.Code != 1 || !strings.Contains(r.Stderr, "nothing was written: 2 of 2 votes are needed and 1 is here; missing: ") {
		t.Errorf("a refused command ended with %d: %s", r.Code, r.Stderr)
	}
	for args, says := range map[string]string{
		"pin add bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy": "nothing was written: 2 of 2 votes are needed and 1 is here; missing: ",
		"pin rm 00000000-0000-4000-8000-000000000000 --yes":                   "nothing can be read or written: 2 of 2 votes are needed and 1 is here; missing: ",
	} {
		if r := first.TryCLI("", strings.Fields(args)...); r.Code != 1 || !strings.Contains(r.Stderr, says) {
			t.Errorf("%s ended with %d: %s", args, r.Code, r.Stderr)
		}
	}
	harness.Eventually(t, time.Minute, "the log warns of it", func() (bool, error) {
		return strings.Contains(first.Log(), `level=WARN msg="the cluster cannot write" why="2 of 2 votes are needed and 1 is here`), nil
	})
	c.Nodes[1].Restart()
	harness.Eventually(t, time.Minute, "status is well again", func() (bool, error) {
		return first.TryCLI("", "status").Code == 0, nil
	})
}

// TestAHangUpEndsInOrder promises that SIGHUP, SIGINT and SIGTERM each end a leader with code 0 after it has handed
// leadership over. So the others go on at once.
func TestAHangUpEndsInOrder(t *testing.T) {
	// Under nohup the signal is ignored, by the nodes as well, unless this process takes it.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	c := harness.Start(t, harness.Options{})
	s := newService(t, c, "signals@example.org")
	for _, signal := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		leader := c.Leader()
		code := leader.End(signal)
		if log := leader.Log(); code != 0 || !strings.Contains(log, fmt.Sprintf("msg=stopped reason=%q", signal.String()+" signal received")) || strings.Contains(log, "cannot hand leadership over") {
			t.Errorf("%s: exit code %d\n%s", signal, code, log)
		}
		putObjects(t, c.Live(), s.token, 3)
		leader.Restart()
		if err := leader.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Settle()
	}
}

// putObjects puts small objects through nodes, sixteen at a time. Each is put again until it
// is accepted.
func putObjects(t *testing.T, nodes []*harness.Node, token string, objects int) {
	t.Helper()
	bucket := "logs" + randomName()
	put := func(n *harness.Node, path string, body []byte) (bool, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, n.S3URL()+path, bytes.NewReader(body))
		if err != nil {
			return false, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return false, fmt.Errorf("PUT %s: %s", path, resp.Status)
		}
		return true, nil
	}
	harness.Eventually(t, time.Minute, "a bucket", func() (bool, error) { return put(nodes[0], "/"+bucket, nil) })
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for {
				i := int(next.Add(1))
				if i > objects || t.Context().Err() != nil {
					return
				}
				err := harness.Poll(t.Context(), 50*time.Millisecond, func() (bool, error) {
					return put(nodes[i%len(nodes)], fmt.Sprintf("/%s/%d", bucket, i), fmt.Appendf(nil, "%s %d", bucket, i))
				})
				if err != nil {
					t.Errorf("object %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
