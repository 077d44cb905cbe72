package cluster

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/prometheus/client_golang/prometheus"
)

// described is a registry that remembers the names of all metrics, also of those without a sample.
type described struct {
	prometheus.Registerer

	names map[string]bool
}

var describedName = regexp.MustCompile(`fqName: "(holdfast_\w+)"`)

// Register implements prometheus.Registerer.
func (d *described) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() {
		c.Describe(descs)
		close(descs)
	}()
	for desc := range descs {
		if m := describedName.FindStringSubmatch(desc.String()); m != nil {
			d.names[m[1]] = true
		}
	}
	return d.Registerer.Register(c)
}

// TestEveryMetricIsDocumented promises that the tables of docs/operating.md have each metric of a node,
// and no others. The metrics of requests belong to the API, and test/conformance reads them.
func TestEveryMetricIsDocumented(t *testing.T) {
	all := &described{names: map[string]bool{}}
	start(t, t.TempDir(), "", "", func(o *node.Options) {
		all.Registerer, o.Registerer = o.Registerer, all
		o.Config.Peer.Routing = config.RoutingLAN
	})
	documented := documentedMetrics(t)
	maps.DeleteFunc(documented, func(name string, _ bool) bool { return strings.HasPrefix(name, "holdfast_http_") })
	for _, name := range slices.Sorted(maps.Keys(all.names)) {
		if !documented[name] {
			t.Errorf("docs/operating.md has no row of %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if !all.names[name] {
			t.Errorf("docs/operating.md describes %s, which no node has", name)
		}
	}
}

// TestAlertsNameMetricsThatExist promises that the alerts of deploy/prometheus read metrics of a node only, and are
// about most of what docs/operating.md says to alert on.
func TestAlertsNameMetricsThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash("../../deploy/prometheus/alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	documented, read := documentedMetrics(t), map[string]bool{}
	for _, name := range regexp.MustCompile(`holdfast_[a-z0-9_]+`).FindAllString(string(text), -1) {
		read[name] = true
		if !documented[name] {
			t.Errorf("an alert reads %s, which no node has", name)
		}
	}
	if len(read) < 10 {
		t.Errorf("the alerts read %d metrics", len(read))
	}
}

// documentedMetrics returns the metrics of the tables of docs/operating.md.
func documentedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash("../../docs/operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| `holdfast_") {
			continue
		}
		first, _, _ := strings.Cut(line[1:], "|")
		for _, name := range regexp.MustCompile("`(holdfast_[a-z0-9_]+)").FindAllStringSubmatch(first, -1) {
			documented[name[1]] = true
		}
	}
	return documented
}
