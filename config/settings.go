package config

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Bounds of values that are counts or times. They keep a slip of the finger
// from starting a node that cannot work.
const (
	maxReplication = 32
	maxConcurrency = 65_536
	maxAttempts    = 1_000
	maxCount       = 1_000_000_000
	minTimeout     = 100 * time.Millisecond
	maxTimeout     = 30 * 24 * time.Hour
	minSegment     = 4 * MiB
	maxSegment     = GiB
	minCache       = MiB
	maxCache       = 64 * GiB
	minServeRate   = 64 * KiB
	maxServeRate   = 16 * GiB
	minReserve     = MiB
	maxReserve     = TiB
	maxPercent     = 50
	minScrubCycle  = time.Second
	minStateCheck  = time.Second
	maxScrubCycle  = 7 * 24 * time.Hour // what the reliability of the store is reckoned with
	maxRate        = 1_000_000
	minSession     = time.Second
	maxSession     = 10 * 365 * 24 * time.Hour
	maxTries       = 10_000
	maxBytes       = 1 << 60
	maxRegion      = 64       // characters
	maxHost        = 253      // characters of a host name, RFC 1035
	maxObject      = 48 * TiB // 10,000 parts of 5 GiB
	minHeartbeat   = 300 * time.Millisecond
	maxHeartbeat   = 2 * time.Second // a write waits 5 s for a leader
	minUploadAge   = time.Minute
	maxUploadAge   = 365 * 24 * time.Hour
	maxNameRunes   = 64
	maxNameBytes   = 128 // what a member's record holds
	maxEntries     = 64  // values of one repeatable setting
)

// EnvPrefix begins the name of every environment variable of Holdfast.
const EnvPrefix = "HOLDFAST_"

// Names outside the rule HOLDFAST_<SECTION>_<NAME>.
const (
	envData   = EnvPrefix + "DATA"   // the data folder, see DataDir
	envSecret = EnvPrefix + "SECRET" // cluster.secret
)

// Setting is one row of the table of settings, for help and documentation.
type Setting struct {
	Key        string // section.name, as in config.toml
	Flag       string // flag of `holdfast run` without dashes, empty if there is none
	Env        string // name of the environment variable
	Default    string // as it is written in config.toml
	Help       string // one line; a word in backquotes names the value
	Repeatable bool   // a list in the file, joined by commas in the environment
}

// setting binds a row of the table to its place in the tree.
type setting struct {
	key, flag, env, help string

	field  func(*Config) any // pointer to the value; its type decides the form
	check  check             // nil when every value of the type will do
	secret bool
	// unserved: the part that it is for is not in this release.
	unserved bool
}

// table is every setting, in the order of the file.
var table = slices.Concat([]setting{
	{
		key: "node.name", flag: "name", help: "`name` of this node, by which commands can call it; empty is the host's name",
		field: func(c *Config) any { return &c.Node.Name }, check: shortText,
	},
	{
		key: "peer.listen", flag: "listen", help: "`multiaddr` of the public IPFS host",
		field: func(c *Config) any { return &c.Peer.Listen }, check: listenAddrs,
	},
	{
		key: "peer.cluster_listen", flag: "cluster-listen", help: "`multiaddr` of the cluster host",
		field: func(c *Config) any { return &c.Peer.ClusterListen }, check: allOf(listenAddrs, notEmpty),
	},
	{
		key: "peer.announce", flag: "announce", help: "`multiaddr` told to others instead of those listened on",
		field: func(c *Config) any { return &c.Peer.Announce }, check: multiaddrs,
	},
	{
		key: "peer.routing", flag: "routing", help: "how providers are found in the IPFS network: `off|lan|public`",
		field: func(c *Config) any { return &c.Peer.Routing }, check: oneOf(RoutingOff, RoutingLAN, RoutingPublic),
	},
	{
		key: "peer.bootstrap", flag: "bootstrap", help: "IPFS bootstrap `multiaddr`; none means those of the public network",
		field: func(c *Config) any { return &c.Peer.Bootstrap }, check: peerAddrs,
	},
	{
		key: "peer.allow_private_origins", flag: "allow-private-origins", help: "dial user-given origins on private and loopback addresses",
		field: func(c *Config) any { return &c.Peer.AllowPrivateOrigins },
	},
	{
		key: "peer.serve_rate", help: "`bytes` a second that the node serves to all unknown peers together",
		field: func(c *Config) any { return &c.Peer.ServeRate }, check: between[Size](minServeRate, maxServeRate),
	},
	{
		key: "cluster.join", flag: "join", help: "`ticket or multiaddr` of a member to join by; once this node is a member, a place to look for members that have moved",
		field: func(c *Config) any { return &c.Cluster.Join }, check: joinPlaces, secret: true,
	},
	{
		key: "cluster.secret_file", flag: "secret-file", help: "`file` that holds the cluster secret: to join by a multiaddr, or of a new cluster",
		field: func(c *Config) any { return &c.Cluster.SecretFile },
	},
	{
		key: "cluster.secret", env: envSecret, help: "the cluster secret itself; better kept in a file or the environment",
		field: func(c *Config) any { return &c.Cluster.Secret }, check: secretText, secret: true,
	},
	{
		key: "cluster.replication", flag: "replication", help: "`copies` of pins and objects, set when the cluster is created",
		field: func(c *Config) any { return &c.Cluster.Replication }, check: between(1, maxReplication),
	},
	{
		key: "cluster.write_copies", help: "durable `copies` behind an acknowledgement; all of them, if there are fewer",
		field: func(c *Config) any { return &c.Cluster.WriteCopies }, check: between(1, maxReplication),
	},
	{
		key: "cluster.heartbeat", help: "`time` without a heartbeat of the leader until another one is elected, on all members the same; auto: the members find it out",
		field: func(c *Config) any { return &c.Cluster.Heartbeat }, check: autoOr(minHeartbeat, maxHeartbeat),
	},
	{
		key: "accounts.allowance", help: "`size` of the free storage of a new account; holdfast user quota changes that of one",
		field: func(c *Config) any { return &c.Accounts.Allowance }, check: between[Size](1, maxBytes),
	},
	{
		key: "pinning.listen", flag: "pinning-listen", help: "`host:port` of the Pinning Service API; empty is off",
		field: func(c *Config) any { return &c.Pinning.Listen }, check: hostPort,
	},
	{
		key: "pinning.default_status", help: "statuses that a list without a status shows: `all`, or some of queued,pinning,pinned,failed",
		field: func(c *Config) any { return &c.Pinning.DefaultStatus }, check: statuses,
	},
}, rateSettings("pinning", func(c *Config) *Rates { return &c.Pinning.Rates }), []setting{
	{
		key: "s3.listen", flag: "s3-listen", help: "`host:port` of the object gateway; empty is off",
		field: func(c *Config) any { return &c.S3.Listen }, check: hostPort,
	},
	{
		key: "s3.region", help: "`name` of the region that clients sign for",
		field: func(c *Config) any { return &c.S3.Region }, check: regionName,
	},
	{
		key: "s3.domain", help: "`host name` below which buckets are hosts (BUCKET.DOMAIN); empty: they are in the path only",
		field: func(c *Config) any { return &c.S3.Domain }, check: hostName,
	},
	{
		key: "s3.max_object_size", help: "largest `size` of the content of one request",
		field: func(c *Config) any { return &c.S3.MaxObject }, check: between[Size](1, maxObject),
	},
	{
		key: "s3.min_part_size", help: "smallest `size` of a part of an upload, except the last",
		field: func(c *Config) any { return &c.S3.MinPart }, check: between[Size](1, maxObject),
	},
	{
		key: "s3.upload_age", help: "an upload that is open for longer than this `time` is discarded",
		field: func(c *Config) any { return &c.S3.UploadAge }, check: between(minUploadAge, maxUploadAge),
	},
	{
		key: "s3.hash_rate", help: "`bytes` a second that a node reads to tell the BLAKE3 hash of uploads that could not",
		field: func(c *Config) any { return &c.S3.HashRate }, check: between[Size](minServeRate, maxServeRate),
	},
}, rateSettings("s3", func(c *Config) *Rates { return &c.S3.Rates }), []setting{
	{
		key: "s3.presigned_v2", help: "accept presigned links of signature version 2, which boto3 makes by default, beside those of version 4",
		field: func(c *Config) any { return &c.S3.PresignedV2 },
	},
	{
		key: "console.listen", flag: "console-listen", help: "`host:port` of the web console; empty is off; not served by this release",
		field: func(c *Config) any { return &c.Console.Listen }, check: hostPort, unserved: true,
	},
	{
		key: "paid.listen", flag: "paid-listen", help: "`host:port` of the gateway paid by request; empty is off; not served by this release",
		field: func(c *Config) any { return &c.Paid.Listen }, check: hostPort, unserved: true,
	},
	{
		key: "gateway.listen", flag: "gateway-listen", help: "`host:port` of the IPFS gateway; empty is off; not served by this release",
		field: func(c *Config) any { return &c.Gateway.Listen }, check: hostPort, unserved: true,
	},
	{
		key: "admin.listen", flag: "admin-listen", help: "`host:port` of metrics and health; empty is off",
		field: func(c *Config) any { return &c.Admin.Listen }, check: hostPort,
	},
}, inheritedRates(), []setting{
	{
		key: "api.noisy_rate", help: "`requests` a second and processor that are started of accounts with at least four times as many requests at a time as another one, while the processors are busy; 0 holds nobody back",
		field: func(c *Config) any { return &c.API.NoisyRate }, check: between(0, maxRate),
	},
	{
		key: "api.trusted_proxies", help: "`address or prefix` of a proxy whose X-Forwarded-For names the client",
		field: func(c *Config) any { return &c.API.TrustedProxies }, check: prefixes,
	},
	{
		key: "api.origins", help: "`origin` whose scripts may use the API from a browser, with a token; * is all, none is off",
		field: func(c *Config) any { return &c.API.Origins }, check: origins,
	},
	{
		key: "api.tls_cert", help: "`file` with the certificate and those above it, in PEM form; empty is plain HTTP",
		field: func(c *Config) any { return &c.API.TLSCert },
	},
	{
		key: "api.tls_key", help: "`file` with the key of the certificate, in PEM form",
		field: func(c *Config) any { return &c.API.TLSKey },
	},
	{
		key: "session.idle", help: "`time` after which a session that was not used ends",
		field: func(c *Config) any { return &c.Session.Idle }, check: between(minSession, maxSession),
	},
	{
		key: "session.lifetime", help: "`time` after which every session ends",
		field: func(c *Config) any { return &c.Session.Lifetime }, check: between(minSession, maxSession),
	},
	{
		key: "session.tries", help: "wrong `passwords` of one name within a minute and node; of one address ten times as many",
		field: func(c *Config) any { return &c.Session.Tries }, check: between(1, maxTries),
	},
	{
		key: "repair.after", help: "a member down for longer than this `time` has its content placed again",
		field: func(c *Config) any { return &c.Repair.After }, check: between(minTimeout, maxTimeout),
	},
	{
		key: "tracker.concurrency", help: "`pins` fetched at the same time",
		field: func(c *Config) any { return &c.Tracker.Concurrency }, check: between(1, maxConcurrency),
	},
	{
		key: "tracker.per_account", help: "`pins` of one account fetched at the same time, those that wait for a block included",
		field: func(c *Config) any { return &c.Tracker.PerAccount }, check: between(1, maxConcurrency),
	},
	{
		key: "tracker.attempts", help: "`fetches` of one pin before it is reported failed",
		field: func(c *Config) any { return &c.Tracker.Attempts }, check: between(1, maxAttempts),
	},
	{
		key: "tracker.backoff", help: "`time` before the second attempt; it doubles from there",
		field: func(c *Config) any { return &c.Tracker.Backoff }, check: between(minTimeout, maxTimeout),
	},
	{
		key: "tracker.idle_timeout", help: "a fetch without a new block for this `time` has failed",
		field: func(c *Config) any { return &c.Tracker.IdleTimeout }, check: between(minTimeout, maxTimeout),
	},
	{
		key: "tracker.total_timeout", help: "a fetch that takes longer than this `time` in all has failed",
		field: func(c *Config) any { return &c.Tracker.TotalTimeout }, check: between(minTimeout, maxTimeout),
	},
	{
		key: "tracker.max_bytes", help: "`size` of one pin; 0 is no bound but the account's",
		field: func(c *Config) any { return &c.Tracker.MaxBytes }, check: between[Size](0, maxBytes),
	},
	{
		key: "tracker.max_blocks", help: "`blocks` of one pin",
		field: func(c *Config) any { return &c.Tracker.MaxBlocks }, check: between(1, maxCount),
	},
	{
		key: "tracker.max_depth", help: "`depth` of the DAG of one pin",
		field: func(c *Config) any { return &c.Tracker.MaxDepth }, check: between(1, maxCount),
	},
	{
		key: "tracker.max_links", help: "`links` of one block",
		field: func(c *Config) any { return &c.Tracker.MaxLinks }, check: between(1, maxCount),
	},
	{
		key: "storage.segment_size", help: "`size` at which a segment file of blocks is closed and the next begun",
		field: func(c *Config) any { return &c.Storage.SegmentSize }, check: between(minSegment, maxSegment),
	},
	{
		key: "storage.cache", help: "`size` of the ordered store's cache in memory",
		field: func(c *Config) any { return &c.Storage.Cache }, check: between(minCache, maxCache),
	},
	{
		key: "storage.reserve", help: "`size` kept free on each disk, so that deletions and the log go on; the node refuses new content below it",
		field: func(c *Config) any { return &c.Storage.Reserve }, check: between(minReserve, maxReserve),
	},
	{
		key: "storage.reserve_percent", help: "the same as `percent` of the disk; the smaller of both counts",
		field: func(c *Config) any { return &c.Storage.ReservePercent }, check: between(1, maxPercent),
	},
	{
		key: "storage.scrub_cycle", help: "`time` within which every stored block is read and verified once",
		field: func(c *Config) any { return &c.Storage.ScrubCycle }, check: between(minScrubCycle, maxScrubCycle),
	},
	{
		key: "storage.state_check", help: "`time` between two comparisons of the replicated state on all members; the leader's counts",
		field: func(c *Config) any { return &c.Storage.StateCheck }, check: between(minStateCheck, maxScrubCycle),
	},
	{
		key: "log.level", flag: "log-level", help: "least `level` that is logged: debug, info, warn, error",
		field: func(c *Config) any { return &c.Log.Level }, check: oneOf("debug", "info", "warn", "error"),
	},
	{
		key: "log.format", flag: "log-format", help: "form of the log: `text|json`",
		field: func(c *Config) any { return &c.Log.Format }, check: oneOf("text", "json"),
	},
})

// environment is the name of the variable that sets s.
func (s setting) environment() string {
	if s.env != "" {
		return s.env
	}
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

// section is the part of the key before the dot.
func (s setting) section() string {
	section, _, _ := strings.Cut(s.key, ".")
	return section
}

// Settings lists every setting in the order of the file. The caller may change
// the slice.
func Settings() []Setting {
	defaults := Default()
	rows := make([]Setting, len(table))
	for i, s := range table {
		_, repeatable := s.field(&defaults).(*[]string)
		rows[i] = Setting{
			Key:        s.key,
			Flag:       s.flag,
			Env:        s.environment(),
			Default:    format(s.field(&defaults)),
			Help:       s.help,
			Repeatable: repeatable,
		}
	}
	return rows
}

// Register adds every setting that has a flag to flags, the flags of
// `holdfast run`. Load takes the same set once it is parsed. --data is not
// among them: it says where the other settings are, see DataDir.
func Register(flags *pflag.FlagSet) {
	defaults := Default()
	for _, s := range table {
		if s.flag == "" {
			continue
		}
		switch v := s.field(&defaults).(type) {
		case *bool:
			flags.Bool(s.flag, *v, s.help)
		case *int:
			flags.Int(s.flag, *v, s.help)
		case *[]string:
			flags.StringArray(s.flag, *v, s.help+" (repeatable)")
		case *string:
			flags.String(s.flag, *v, s.help)
		default:
			flags.String(s.flag, strings.Trim(format(v), `"`), s.help)
		}
	}
}
