package config

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Limits of counts, sizes and times. A node whose settings exceed a limit does not start, so that
// the operator notices a mistyped value.
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
	maxScrubCycle  = 7 * 24 * time.Hour // the estimate of durability assumes no longer cycle
	maxRate        = 1_000_000
	minSession     = time.Second
	maxSession     = 10 * 365 * 24 * time.Hour
	maxTries       = 10_000
	maxGBMonth     = 1_000_000_000_000
	minPeriod      = time.Second
	maxGrace       = 10 * 365 * 24 * time.Hour
	maxPeriod      = 31 * 24 * time.Hour
	maxBytes       = 1 << 60
	maxRegion      = 64       // characters
	maxHost        = 253      // characters of a host name, RFC 1035
	maxObject      = 48 * TiB // 10,000 parts of 5 GiB
	minHeartbeat   = 300 * time.Millisecond
	maxHeartbeat   = 2 * time.Second // a write waits at most 5 s for a new leader
	minUploadAge   = time.Minute
	maxUploadAge   = 365 * 24 * time.Hour
	maxNameRunes   = 64
	maxNameBytes   = 128 // limit of the replicated record of a member
	maxEntries     = 64  // values of one repeatable setting
)

// EnvPrefix is the prefix of every environment variable of Holdfast.
const EnvPrefix = "HOLDFAST_"

// Environment variables whose names do not have the form HOLDFAST_<SECTION>_<NAME>.
const (
	envData   = EnvPrefix + "DATA"   // the data folder, see DataDir
	envSecret = EnvPrefix + "SECRET" // cluster.secret
)

// Setting describes one setting, for help texts and documentation.
type Setting struct {
	Key        string // section.name, as in config.toml
	Flag       string // flag of `holdfast run` without dashes, empty if there is none
	Env        string // name of the environment variable
	Default    string // as it is written in config.toml
	Help       string // one line; a word in backquotes names the value
	Repeatable bool   // a list in the file, joined by commas in the environment
	// Values are the only words that the setting accepts; empty for all other settings.
	Values []string
}

// setting describes one setting: its names, its checks, and the field of Config that stores its
// value.
type setting struct {
	key, flag, env, help string

	field  func(*Config) any // returns a pointer to the field of Config; fromText and fromFile parse by its type
	check  check             // nil if every value of the type is valid
	values []string          // the only words that a text setting accepts; nil: no such list
	secret bool
	// fileOnly marks a setting that can be set only in config.toml. Load rejects its variable.
	fileOnly bool
}

// table lists all settings, in the order of the settings file.
var table = slices.Concat([]setting{
	{
		key: "node.name", flag: "name", help: "`name` of this node in commands and status; empty means the name of the host",
		field: func(c *Config) any { return &c.Node.Name }, check: shortText,
	},
	{
		key: "node.zone", help: "`zone` in which the node stands, such as a rack or a data centre, by which the console groups the nodes",
		field: func(c *Config) any { return &c.Node.Zone }, check: shortText,
	},
	{
		key: "peer.listen", flag: "listen", help: "`multiaddr` on which the public IPFS host listens",
		field: func(c *Config) any { return &c.Peer.Listen }, check: listenAddrs,
	},
	{
		key: "peer.cluster_listen", flag: "cluster-listen", help: "`multiaddr` on which the cluster host listens",
		field: func(c *Config) any { return &c.Peer.ClusterListen }, check: allOf(listenAddrs, notEmpty),
	},
	{
		key: "peer.announce", flag: "announce", help: "`multiaddr` that the public IPFS host announces instead of its listen addresses",
		field: func(c *Config) any { return &c.Peer.Announce }, check: multiaddrs,
	},
	{
		key: "peer.cluster_announce", help: "`multiaddr` at which other members reach the cluster host, if it is not a listen address: with a DNS name, or in front of a NAT",
		field: func(c *Config) any { return &c.Peer.ClusterAnnounce }, check: clusterAddrs,
	},
	{
		key: "peer.routing", flag: "routing", help: "where the node finds and announces providers: `off|lan|public`",
		field: func(c *Config) any { return &c.Peer.Routing }, values: []string{RoutingOff, RoutingLAN, RoutingPublic},
	},
	{
		key: "peer.bootstrap", flag: "bootstrap", help: "`multiaddr` of an IPFS bootstrap peer; empty means those of the public network",
		field: func(c *Config) any { return &c.Peer.Bootstrap }, check: peerAddrs,
	},
	{
		key: "peer.allow_private_origins", flag: "allow-private-origins", help: "dial origins of users on private and loopback addresses",
		field: func(c *Config) any { return &c.Peer.AllowPrivateOrigins },
	},
	{
		key: "peer.serve_rate", help: "`bytes` per second that the node serves to all unknown peers together",
		field: func(c *Config) any { return &c.Peer.ServeRate }, check: between[Size](minServeRate, maxServeRate),
	},
	{
		key: "cluster.join", flag: "join", help: "`ticket or multiaddr` of a member through which the node joins; a node that is a member already looks there for members that have moved",
		field: func(c *Config) any { return &c.Cluster.Join }, check: joinPlaces, secret: true,
	},
	{
		key: "cluster.join_file", help: "`file` with more values of cluster.join, one a line; a new node waits for one minute until the file is there",
		field: func(c *Config) any { return &c.Cluster.JoinFile },
	},
	{
		key: "cluster.secret_file", flag: "secret-file", help: "`file` with the cluster secret, to join by a multiaddr or to create a cluster with this secret",
		field: func(c *Config) any { return &c.Cluster.SecretFile },
	},
	{
		key: "cluster.secret", env: envSecret, help: "the cluster secret itself; cluster.secret_file or the environment keeps it out of config.toml",
		field: func(c *Config) any { return &c.Cluster.Secret }, check: secretText, secret: true,
	},
	{
		key: "cluster.replication", flag: "replication", help: "number of `copies` of each pin and object; the node that creates the cluster sets it",
		field: func(c *Config) any { return &c.Cluster.Replication }, check: between(1, maxReplication),
	},
	{
		key: "cluster.write_copies", help: "number of `copies` that must be durable before the node acknowledges a write; if a pin or object has fewer copies, all of them",
		field: func(c *Config) any { return &c.Cluster.WriteCopies }, check: between(1, maxReplication),
	},
	{
		key: "cluster.heartbeat", help: "`time` without a heartbeat from the leader after which members elect another; equal on all members; auto means that the members derive it from measured delays",
		field: func(c *Config) any { return &c.Cluster.Heartbeat }, check: autoOr(minHeartbeat, maxHeartbeat),
	},
	{
		key: "accounts.allowance", help: "`size` that a new account can store without credits; holdfast user quota changes it for one account",
		field: func(c *Config) any { return &c.Accounts.Allowance }, check: between[Size](1, maxBytes),
	},
	{
		key: "credits.gb_month", help: "`credits` that a gigabyte above the allowance costs in 30 days; 0: storage costs nothing; equal on all members",
		field: func(c *Config) any { return &c.Credits.GBMonth }, check: between(0, maxGBMonth),
	},
	{
		key: "credits.million_requests", help: "`credits` that 1,000,000 requests cost; 0: requests cost nothing; equal on all members",
		field: func(c *Config) any { return &c.Credits.MillionRequests }, check: between(0, maxGBMonth),
	},
	{
		key: "credits.period", help: "`time` after which accounts are charged again; equal on all members",
		field: func(c *Config) any { return &c.Credits.Period }, check: between(minPeriod, maxPeriod),
	},
	{
		key: "credits.grace", help: "`time` for which an account without credits keeps what it stores above its allowance; then its newest content ends; equal on all members",
		field: func(c *Config) any { return &c.Credits.Grace }, check: between(minPeriod, maxGrace),
	},
	{
		key: "pinning.listen", flag: "pinning-listen", help: "`host:port` of the Pinning Service API; empty turns it off",
		field: func(c *Config) any { return &c.Pinning.Listen }, check: hostPort,
	},
	{
		key: "pinning.default_status", help: "pin states that a list request without a status returns: `all`, or some of queued,pinning,pinned,failed",
		field: func(c *Config) any { return &c.Pinning.DefaultStatus }, check: statuses,
	},
}, rateSettings("pinning", func(c *Config) *Rates { return &c.Pinning.Rates }), []setting{
	{
		key: "s3.listen", flag: "s3-listen", help: "`host:port` of the S3 gateway; empty turns it off",
		field: func(c *Config) any { return &c.S3.Listen }, check: hostPort,
	},
	{
		key: "s3.region", help: "`name` of the region for which clients sign requests",
		field: func(c *Config) any { return &c.S3.Region }, check: regionName,
	},
	{
		key: "s3.domain", help: "`host name` under which each bucket is a host (BUCKET.DOMAIN); empty means that buckets are in the path only",
		field: func(c *Config) any { return &c.S3.Domain }, check: hostName,
	},
	{
		key: "s3.max_object_size", help: "largest `size` of the content of one request",
		field: func(c *Config) any { return &c.S3.MaxObject }, check: between[Size](1, maxObject),
	},
	{
		key: "s3.min_part_size", help: "smallest `size` of a part of a multipart upload, except the last part",
		field: func(c *Config) any { return &c.S3.MinPart }, check: between[Size](1, maxObject),
	},
	{
		key: "s3.upload_age", help: "`time` after which the cluster discards a multipart upload that is still open",
		field: func(c *Config) any { return &c.S3.UploadAge }, check: between(minUploadAge, maxUploadAge),
	},
	{
		key: "s3.hash_rate", help: "`bytes` per second that the node reads to compute BLAKE3 hashes that were not known at the end of an upload",
		field: func(c *Config) any { return &c.S3.HashRate }, check: between[Size](minServeRate, maxServeRate),
	},
}, rateSettings("s3", func(c *Config) *Rates { return &c.S3.Rates }), []setting{
	{
		key: "s3.presigned_v2", help: "accept presigned URLs of signature version 2, the default of boto3, in addition to version 4",
		field: func(c *Config) any { return &c.S3.PresignedV2 },
	},
	{
		key: "console.listen", flag: "console-listen", help: "`host:port` of the web console; empty turns it off",
		field: func(c *Config) any { return &c.Console.Listen }, check: hostPort,
	},
	{
		key: "console.url", help: "`origin` at which people reach the web console, such as https://console.example.org; links and the redirect URI of OpenID providers begin with it",
		field: func(c *Config) any { return &c.Console.URL }, check: webOrigin,
	},
	{
		key: "console.ipfs_gateway", help: "`origin` of an IPFS gateway, such as https://dweb.link, at which the page of a pin links to the content; empty means the gateway of this node if gateway.hosts has a name, else no link",
		field: func(c *Config) any { return &c.Console.IPFSGateway }, check: webOrigin,
	},
	{
		key: "console.oidc", help: "OpenID providers at which people sign in, each a table [[console.oidc]] in config.toml with `name, issuer, client_id, client_secret or client_secret_file, scopes, domains and admins`",
		field: func(c *Config) any { return &c.Console.OpenID }, check: providers, fileOnly: true,
	},
	{
		key: "console.oidc_private", help: "dial OpenID providers on private and loopback addresses, and by plain HTTP",
		field: func(c *Config) any { return &c.Console.OpenIDPrivate },
	},
	{
		key: "console.sign_up", help: "who can open an account: `open|invited|off`; open means everybody with a verified e-mail address at an OpenID provider, invited means people with an invitation or with an address in a domain of a provider",
		field: func(c *Config) any { return &c.Console.SignUp }, values: []string{SignUpOpen, signUpInvited, signUpOff},
	},
	{
		key: "console.security_contact", help: "`URI` in /.well-known/security.txt for reports of security problems, such as mailto:security@example.org; empty means that there is no such file",
		field: func(c *Config) any { return &c.Console.SecurityContact }, check: contact,
	},
}, gatewaySettings(), []setting{
	{
		key: "admin.listen", flag: "admin-listen", help: "`host:port` of metrics and health checks; empty turns it off",
		field: func(c *Config) any { return &c.Admin.Listen }, check: hostPort,
	},
}, paidSettings(), inheritedRates(), []setting{
	{
		key: "api.noisy_rate", help: "`requests` per second and processor that the node starts for noisy accounts while its processors or those of the leader are busy; a noisy account has at least four times as many concurrent requests as another one in the cluster; 0 turns this off",
		field: func(c *Config) any { return &c.API.NoisyRate }, check: between(0, maxRate),
	},
	{
		key: "api.trusted_proxies", help: "`address or prefix` of a proxy whose X-Forwarded-For header the node trusts",
		field: func(c *Config) any { return &c.API.TrustedProxies }, check: prefixes,
	},
	{
		key: "api.origins", help: "`origin` whose scripts can use the API from a browser with a token; * means every origin, an empty list means none",
		field: func(c *Config) any { return &c.API.Origins }, check: origins,
	},
	{
		key: "api.tls_cert", help: "`file` with the TLS certificate and its chain, in PEM form; empty means plain HTTP",
		field: func(c *Config) any { return &c.API.TLSCert },
	},
	{
		key: "api.tls_key", help: "`file` with the private key of the certificate, in PEM form",
		field: func(c *Config) any { return &c.API.TLSKey },
	},
	{
		key: "session.idle", help: "`time` without use after which a session ends",
		field: func(c *Config) any { return &c.Session.Idle }, check: between(minSession, maxSession),
	},
	{
		key: "session.lifetime", help: "`time` after its start at which a session ends, even if it is in use",
		field: func(c *Config) any { return &c.Session.Lifetime }, check: between(minSession, maxSession),
	},
	{
		key: "session.tries", help: "wrong `passwords` per minute for one name, after which the node refuses further sign-ins; ten times as many for one address",
		field: func(c *Config) any { return &c.Session.Tries }, check: between(1, maxTries),
	},
	{
		key: "repair.after", help: "`time` that a member is down before the cluster places its content on other members",
		field: func(c *Config) any { return &c.Repair.After }, check: between(minTimeout, maxTimeout),
	},
	{
		key: "tracker.concurrency", help: "largest number of `pins` that the node fetches at the same time",
		field: func(c *Config) any { return &c.Tracker.Concurrency }, check: between(1, maxConcurrency),
	},
	{
		key: "tracker.per_account", help: "largest number of `pins` of one account that the node fetches at the same time, including pins that wait for a block",
		field: func(c *Config) any { return &c.Tracker.PerAccount }, check: between(1, maxConcurrency),
	},
	{
		key: "tracker.attempts", help: "number of `fetches` of a pin after which the pin fails",
		field: func(c *Config) any { return &c.Tracker.Attempts }, check: between(1, maxAttempts),
	},
	{
		key: "tracker.backoff", help: "`time` between the first and the second fetch of a pin; it doubles for each later fetch",
		field: func(c *Config) any { return &c.Tracker.Backoff }, check: between(minTimeout, maxTimeout),
	},
	{
		key: "tracker.idle_timeout", help: "`time` without a new block after which a fetch fails",
		field: func(c *Config) any { return &c.Tracker.IdleTimeout }, check: between(minTimeout, maxTimeout),
	},
	{
		key: "tracker.total_timeout", help: "longest `time` of a fetch",
		field: func(c *Config) any { return &c.Tracker.TotalTimeout }, check: between(minTimeout, maxTimeout),
	},
	{
		key: "tracker.max_bytes", help: "largest `size` of one pin; 0 means that only the account limits it",
		field: func(c *Config) any { return &c.Tracker.MaxBytes }, check: between[Size](0, maxBytes),
	},
	{
		key: "tracker.max_blocks", help: "largest number of `blocks` of one pin",
		field: func(c *Config) any { return &c.Tracker.MaxBlocks }, check: between(1, maxCount),
	},
	{
		key: "tracker.max_depth", help: "largest `depth` of the DAG of one pin",
		field: func(c *Config) any { return &c.Tracker.MaxDepth }, check: between(1, maxCount),
	},
	{
		key: "tracker.max_links", help: "largest number of `links` of one block",
		field: func(c *Config) any { return &c.Tracker.MaxLinks }, check: between(1, maxCount),
	},
	{
		key: "storage.segment_size", help: "`size` at which the node closes a segment file of blocks and begins the next",
		field: func(c *Config) any { return &c.Storage.SegmentSize }, check: between(minSegment, maxSegment),
	},
	{
		key: "storage.cache", help: "`size` of the memory cache of the key-value store",
		field: func(c *Config) any { return &c.Storage.Cache }, check: between(minCache, maxCache),
	},
	{
		key: "storage.reserve", help: "`size` that the node keeps free on each disk for deletions and the Raft log; with less room it refuses new content",
		field: func(c *Config) any { return &c.Storage.Reserve }, check: between(minReserve, maxReserve),
	},
	{
		key: "storage.reserve_percent", help: "the same reserve as `percent` of the disk; the smaller of both applies",
		field: func(c *Config) any { return &c.Storage.ReservePercent }, check: between(1, maxPercent),
	},
	{
		key: "storage.scrub_cycle", help: "`time` within which the node reads and verifies every stored block once",
		field: func(c *Config) any { return &c.Storage.ScrubCycle }, check: between(minScrubCycle, maxScrubCycle),
	},
	{
		key: "storage.state_check", help: "`time` between two comparisons of the replicated state of all members; the setting of the leader applies",
		field: func(c *Config) any { return &c.Storage.StateCheck }, check: between(minStateCheck, maxScrubCycle),
	},
	{
		key: "log.level", flag: "log-level", help: "lowest `level` that is logged: debug, info, warn or error",
		field: func(c *Config) any { return &c.Log.Level }, values: []string{"debug", "info", "warn", "error"},
	},
	{
		key: "log.format", flag: "log-format", help: "format of log lines: `text|json`",
		field: func(c *Config) any { return &c.Log.Format }, values: []string{"text", "json"},
	},
})

// environment returns the name of the environment variable of s.
func (s setting) environment() string {
	if s.env != "" {
		return s.env
	}
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

// also returns the names by which a setting can be set outside the settings file: its flag, if it
// has one, and its variable. For a fileOnly setting it returns the name of the settings file. The
// settings template shows these names.
func (s setting) also() []string {
	switch {
	case s.fileOnly:
		return []string{FileName}
	case s.flag != "":
		return []string{"--" + s.flag, s.environment()}
	}
	return []string{s.environment()}
}

// section returns the part of the key before the dot.
func (s setting) section() string {
	section, _, _ := strings.Cut(s.key, ".")
	return section
}

// Settings returns the descriptions of all settings, in the order of the settings file. The slice
// is a copy that the caller can change.
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
			Values:     slices.Clone(s.values),
		}
	}
	return rows
}

// Register adds to flags the flag of each setting that has one. After parsing, the caller passes
// flags to Load. Register does not add --data, because Load needs the data folder to find the
// settings file; see DataDir.
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
