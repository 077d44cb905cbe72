package arch

import (
	"slices"
	"strings"
)

// row lists which packages of Holdfast the packages that match pkg may import. In addition, all
// packages may import internal/*, except those in the variable pure. A pattern is a folder, or a
// folder followed by /* for all folders below it.
type row struct {
	pkg   string
	may   []string
	layer int // tests of a package may also import packages of the same or a lower layer
}

// The layers of packages, from the lowest to the highest.
const (
	layerIsland = iota
	layerUseCase
	layerNode
	layerAPI
	layerCommand
	layerTest
)

// useCases are the packages that implement what the HTTP APIs offer.
var useCases = []string{
	"cluster/pins", "cluster/objects", "cluster/accounts", "cluster/credits", "cluster/members", "cluster/content", "cluster/integrity",
	"cluster/openid", "cluster/audit", "cluster/payments", "cluster/upkeep", "cluster/uploads",
}

// surface lists the packages that the package of an HTTP API may import.
var surface = slices.Concat([]string{"api/internal/web", "consensus/state"}, useCases)

// rows is the table of allowed imports. The first row whose pattern matches a package applies. A
// package without a row is a violation.
var rows = []row{
	{"cmd/holdfast", []string{"config", "cluster/node", "api", "api/admin/client", "api/client", "api/client/*"}, layerCommand},

	{"config", nil, layerIsland},
	{"consensus/codec", nil, layerIsland},
	{"consensus/state", []string{"consensus/codec"}, layerIsland},
	{"consensus/wire", []string{"consensus/state", "consensus/codec"}, layerIsland},
	{"consensus/transport", []string{"consensus/wire", "consensus/codec"}, layerIsland},
	{"consensus", []string{"consensus/*"}, layerIsland},
	{"peer", []string{"peer/*"}, layerIsland},
	{"peer/dag", []string{"peer/*"}, layerIsland},
	{"peer/peertest", []string{"peer/*", "peer"}, layerIsland},
	{"storage/kv", []string{"storage/*"}, layerIsland},
	{"storage/blocks", []string{"storage/*"}, layerIsland},
	{"storage/raftlog", []string{"storage/*"}, layerIsland},
	{"storage/nodemeta", []string{"storage/*"}, layerIsland},
	{"storage/datastore", []string{"storage/*"}, layerIsland},
	{"storage/durable", []string{"storage/*"}, layerIsland},
	{"storage/volume", []string{"storage/durable"}, layerIsland},

	{"cluster/placement", []string{"consensus/state"}, layerUseCase},
	{"cluster/duty", []string{"consensus/state"}, layerUseCase},
	{"cluster/pins", []string{"consensus/state", "cluster/placement", "cluster/duty"}, layerUseCase},
	{"cluster/objects", []string{"consensus/state", "cluster/placement", "cluster/ingest", "cluster/bao", "cluster/multimd5"}, layerUseCase},
	{"cluster/bao", nil, layerUseCase},
	{"cluster/multimd5", nil, layerUseCase},
	{"cluster/accounts", []string{"consensus/state", "cluster/placement"}, layerUseCase},
	{"cluster/audit", []string{"consensus/state"}, layerUseCase},
	{"cluster/credits", []string{"consensus/state", "cluster/placement", "cluster/duty"}, layerUseCase},
	{"cluster/payments", []string{"consensus/state", "consensus/codec", "cluster/objects", "cluster/pins", "cluster/placement", "cluster/ingest", "cluster/duty"}, layerUseCase},
	{"cluster/members", []string{"consensus/state", "cluster/placement"}, layerUseCase},
	{"cluster/content", []string{"consensus/state", "cluster/placement"}, layerUseCase},
	{"cluster/ingest", []string{"consensus/state"}, layerUseCase},
	{"cluster/integrity", nil, layerUseCase},
	{"cluster/openid", nil, layerUseCase},
	{"cluster/facilitator", []string{"cluster/payments"}, layerUseCase},
	{"cluster/tracker", []string{"consensus/state", "cluster/placement"}, layerUseCase},
	{"cluster/backup", []string{"consensus/state"}, layerUseCase},
	{"cluster/upkeep", []string{"consensus/state", "cluster/tracker"}, layerUseCase},
	{"cluster/uploads", []string{"consensus/state", "cluster/content", "cluster/pins"}, layerUseCase},
	{"cluster/clustertest", []string{"consensus/state", "consensus/codec"}, layerUseCase},
	{"cluster/gossip", []string{"consensus/state", "cluster/placement"}, layerUseCase},
	{"cluster/node", []string{
		"cluster/*", "config", "consensus", "consensus/*", "peer", "peer/*", "storage/*",
	}, layerNode},

	{"api", slices.Concat([]string{"api/*"}, useCases), layerAPI},
	{"api/internal/web", []string{"cluster/accounts", "cluster/audit", "cluster/credits", "consensus/state"}, layerAPI},
	{"api/internal/pinbody", []string{"api/internal/web", "cluster/pins", "consensus/state"}, layerAPI},
	{"api/internal/drainbody", []string{"cluster/members"}, layerAPI},
	{"api/pinning", slices.Concat([]string{"api/internal/pinbody"}, surface), layerAPI},
	{"api/s3", slices.Concat([]string{"api/s3/sigv4"}, surface), layerAPI},
	{"api/s3/sigv4", nil, layerAPI},
	{"api/console", surface, layerAPI},
	{"api/webapi", slices.Concat([]string{"api/internal/drainbody"}, surface), layerAPI},
	{"api/internal/apitest", slices.Concat([]string{"cluster/clustertest", "cluster/placement", "cluster/ingest"}, surface), layerAPI},
	{"api/paid", slices.Concat([]string{"api/internal/pinbody"}, surface), layerAPI},
	{"api/admin", slices.Concat([]string{"api/internal/drainbody"}, surface), layerAPI},
	{"api/ipfs", surface, layerAPI},
	{"api/admin/client", []string{"api/admin"}, layerAPI}, // the bodies are described once
	{"api/client", []string{"api/client/*"}, layerAPI},
	{"api/client/seal", nil, layerAPI},

	{"deploy/container/image", nil, layerCommand},

	{"internal/*", nil, layerIsland},
	{"test/arch", nil, layerTest},
	{"test/*", []string{"*"}, layerTest},
}

// fence allows imports whose path begins with prefix only in some packages.
type fence struct {
	prefix string
	only   []string // the packages that may import it
	tests  bool     // tests of other packages may import it too
	why    string   // the rule, as text for people
}

// fences restrict imports of other modules and of some standard packages. With tests set to true, a
// test may import the package anywhere, for example to play the part of an unknown IPFS peer.
var fences = []fence{
	{"github.com/libp2p/", []string{"peer", "peer/peertest"}, true, "libp2p only in peer"},
	{"github.com/hashicorp/raft-boltdb", []string{"storage/raftlog"}, true, "the Raft log's store only in storage/raftlog"},
	{"go.etcd.io/bbolt", []string{"storage/raftlog"}, true, "the Raft log's store only in storage/raftlog"},
	{"github.com/hashicorp/raft", []string{"consensus", "consensus/transport", "storage/raftlog"}, true, "Raft only in consensus and storage/raftlog"},
	{"github.com/ipfs/boxo", []string{"peer", "peer/dag", "peer/peertest", "storage/blocks", "api/ipfs"}, true, "boxo only in peer, storage/blocks and api/ipfs"},
	{"github.com/cockroachdb/pebble", []string{"storage/*"}, true, "Pebble only in storage"},
	{"github.com/ipfs/go-ds-pebble", []string{"storage/datastore"}, false, "the IPFS peer's datastore only in storage/datastore"},
	{"github.com/knadh/koanf", []string{"config"}, false, "settings are read only in config"},
	{"github.com/spf13/cobra", []string{"cmd/holdfast"}, false, "commands only in cmd"},
	{"github.com/spf13/pflag", []string{"cmd/holdfast", "config"}, false, "flags only in cmd and config"},
	{"github.com/coreos/go-oidc", []string{"cluster/openid"}, false, "OpenID providers only in cluster/openid"},
	{"golang.org/x/oauth2", []string{"cluster/openid"}, false, "OpenID providers only in cluster/openid"},
	{"github.com/schollz/progressbar", []string{"cmd/holdfast"}, false, "terminals only in cmd"},
	{"lukechampine.com/blake3", []string{"cluster/bao", "api/client", "api/client/*", "consensus/state"}, true, "BLAKE3 only in cluster/bao, the client, and the audit log of consensus/state"},
	{"github.com/cenkalti/backoff", []string{"internal/backoff"}, false, "attempts are paced by internal/backoff"},
	{"github.com/hashicorp/golang-lru", []string{"internal/cache"}, false, "what was used last is kept by internal/cache"},
	{"container/list", []string{"cluster/tracker"}, false, "lines of waiting only in cluster/tracker; what was used last is kept by internal/cache"},
	{"encoding/xml", []string{"api/s3", "api/client"}, true, "XML only in api/s3, and in api/client, which reads its errors"},
	{"github.com/decred/dcrd/dcrec/secp256k1", []string{"internal/x402test"}, false, "keys of payers only in internal/x402test: the program never signs a payment"},
	{"github.com/stretchr/testify", nil, false, "tests use the standard library"},
	{"github.com/minio/minio-go", []string{"api/client"}, true, "requests of S3 are sent only by api/client"},
	{"github.com/aws/", nil, true, "other people's clients only in tests"},
	{"testing", nil, true, "testing only in tests"},
	{"log", nil, false, "log/slog, with an injected logger"},
	{"C", nil, false, "no cgo"},
}

// matches reports whether the package pkg matches a pattern: "*", a folder, or a folder followed by
// "/*".
func matches(pattern, pkg string) bool {
	if pattern == "*" {
		return true
	}
	if below, ok := strings.CutSuffix(pattern, "/*"); ok {
		return strings.HasPrefix(pkg, below+"/")
	}
	return pattern == pkg
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, pkg) })
}

// rowOf returns the row that applies to pkg. The second result is false if there is none.
func rowOf(pkg string) (row, bool) {
	i := slices.IndexFunc(rows, func(r row) bool { return matches(r.pkg, pkg) })
	if i < 0 {
		return row{}, false
	}
	return rows[i], true
}

// checkRow returns a violation if no row of the table applies to the package of files.
func checkRow(files []*file) []Violation {
	if _, ok := rowOf(files[0].pkg); ok {
		return nil
	}
	return []Violation{files[0].violation(files[0].tree, "row", "package %s has no row in the import table", files[0].pkg)}
}

// checkImports returns a violation for each import of a file that neither its row nor the fences
// allow.
func checkImports(f *file) []Violation {
	own, known := rowOf(f.pkg)
	var broken []Violation
	for _, spec := range f.tree.Imports {
		target := strings.Trim(spec.Path.Value, `"`)
		ours, isOurs := strings.CutPrefix(target, Module+"/")
		if !isOurs {
			if why := fencedOff(f, target); why != "" {
				broken = append(broken, f.violation(spec, "fence", "%s is imported: %s", target, why))
			}
			continue
		}
		if strings.HasSuffix(ours, "test") && !f.belongsToTests() {
			broken = append(broken, f.violation(spec, "import", "%s is for tests", ours))
		}
		if !known || ours == f.pkg || (matchesAny(own.may, ours) && !matches("cmd/*", ours)) {
			continue
		}
		if _, isPure := pure[f.pkg]; matches("internal/*", ours) && (!isPure || f.test) {
			continue
		}
		if above, ok := rowOf(ours); f.test && ok && above.layer <= own.layer {
			continue
		}
		broken = append(broken, f.violation(spec, "import", "%s may not import %s", f.pkg, ours))
	}
	return broken
}

// fencedOff returns why a fence forbids f to import target, or "" if none does.
func fencedOff(f *file, target string) string {
	for _, fence := range fences {
		inside := target == fence.prefix || strings.HasPrefix(target, strings.TrimSuffix(fence.prefix, "/")+"/") ||
			strings.HasPrefix(target, fence.prefix+"-")
		if !inside {
			continue
		}
		if fence.prefix == "log" && target != "log" {
			continue // log/slog is the way
		}
		if matchesAny(fence.only, f.pkg) || (fence.tests && f.belongsToTests()) {
			return ""
		}
		return fence.why
	}
	return ""
}
