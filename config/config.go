// Package config holds the settings of a node: one tree of values, the table that names
// each setting, and the loading of file, environment and flags over the defaults. It is
// the only package that interprets the environment, which its caller passes in.
//
// A setting has one key, section.name. In DIR/config.toml it stands under [section], in
// the environment it is HOLDFAST_<SECTION>_<NAME>, and some have a flag of `holdfast
// run`. A flag overrides the environment, the environment overrides the file, and the
// file overrides the default. An unknown key is an error that names it.
//
// Imports: std, koanf, pflag, go-multiaddr.
// Never:   consensus, peer, storage, cluster, api; os.Getenv; the network.
package config

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Config is every setting of one node. It is a value: parts of the program take
// their own small struct made from it in cluster/node, never Config itself.
type Config struct {
	// Data is the folder that holds everything the node keeps. It is no
	// setting of the file, because it says where the file is.
	Data string

	// Unserved says what was set for parts that this release does not have, each by
	// where it was set. It changes nothing, and is to be told.
	Unserved []Unserved

	secretFrom *source // what gave Cluster.SecretFile; nil when it was set in code

	Node     Node
	Peer     Peer
	Cluster  Cluster
	Accounts Accounts
	Pinning  Pinning
	S3       S3
	Console  Console
	Paid     Paid
	Gateway  Gateway
	Admin    Admin
	API      API
	Session  Session
	Repair   Repair
	Tracker  Tracker
	Storage  Storage
	Log      Log
}

// Unserved is one setting that changes nothing yet.
type Unserved struct {
	Key    string // section.name
	Source string // file, variable or flag that set it
}

// Node is how the node is called.
type Node struct {
	Name string // shown to people; empty means the host's name
}

// Peer is the embedded IPFS peer: its public host and its cluster host.
type Peer struct {
	Listen              []string // multiaddrs of the public host
	ClusterListen       []string // multiaddrs of the cluster host
	Announce            []string // multiaddrs told to others instead of the listened ones
	Routing             string   // one of the Routing constants
	Bootstrap           []string // multiaddrs with /p2p/; empty means the public network's own
	AllowPrivateOrigins bool     // dial user-given origins on private and loopback addresses
	ServeRate           Size     // bytes a second that unknown peers together are served
}

// Ways to find providers in the IPFS network, values of peer.routing.
const (
	RoutingOff    = "off"
	RoutingLAN    = "lan"
	RoutingPublic = "public"
)

// Cluster is membership and how many copies are kept.
type Cluster struct {
	Join        []string // tickets or bootstrap multiaddrs; once a member, where to look for others
	SecretFile  string   // file that holds the cluster secret, see GivenSecret
	Secret      string   // the cluster secret itself; the environment's HOLDFAST_SECRET
	Replication int      // copies of pins and objects, used when the cluster is created
	WriteCopies int      // durable copies behind an acknowledgement; all, if there are fewer
	// Heartbeat is after what time without a word of the leader another one is
	// elected.
	Heartbeat AutoDuration
}

// Accounts is what new accounts get.
type Accounts struct {
	Allowance Size // free storage of an account, until it is given another one
}

// Pinning is the Pinning Service API.
type Pinning struct {
	Listen        string // host:port, empty is off
	DefaultStatus string // statuses that a list without a status shows: "all" or names joined by commas
	Rates
}

// DefaultStatuses are the names in DefaultStatus, "all" spelt out.
func (p Pinning) DefaultStatuses() []string {
	if p.DefaultStatus == statusAll {
		return slices.Clone(pinStatuses)
	}
	return strings.Split(p.DefaultStatus, ",")
}

// S3 is the object gateway.
type S3 struct {
	Rates
	Listen    string        // host:port, empty is off
	Region    string        // that signatures and HEAD of a bucket name
	Domain    string        // buckets are also hosts below this one; empty: they are not
	MaxObject Size          // bytes of one PUT
	MinPart   Size          // bytes of a part of an upload that is not the last
	UploadAge time.Duration // an upload that is open for longer is discarded
	HashRate  Size          // bytes a second that a node reads of objects whose BLAKE3 hash is not known
	// PresignedV2 takes presigned links of signature version 2, which boto3 makes by default.
	PresignedV2 bool
}

// Console is the web console.
type Console struct {
	Listen string // host:port, empty is off
}

// Paid is the gateway that is paid for by request.
type Paid struct {
	Listen string // host:port, empty is off
}

// Gateway is the IPFS gateway.
type Gateway struct {
	Listen string // host:port, empty is off
}

// Admin is metrics and health.
type Admin struct {
	Listen string // host:port, empty is off
}

// API is what the HTTP interfaces have in common.
type API struct {
	// Rates are those of each API that sets none of its own; Inherit leaves each API its default.
	Rates
	TrustedProxies  []string // addresses and prefixes whose X-Forwarded-For is believed
	Origins         []string // whose scripts may use the API from a browser; "*" is all
	TLSCert, TLSKey string   // files in PEM form; empty: plain HTTP
	// NoisyRate is how many requests a second are started, on each processor while those or the
	// leader's are busy, of accounts that send far more than others. 0 holds nobody back.
	NoisyRate int
}

// Rates bound how many requests this node takes for one API.
type Rates struct {
	// AccountRate and AccountBurst are how many requests a second, and how many at
	// once, one account may send; AddressRate and AddressBurst the same for one
	// address. A rate of 0 is no limit.
	AccountRate, AccountBurst int
	AddressRate, AddressBurst int
}

// Inherit is the value of a rate or burst of API that says nothing: each API has its own.
const Inherit = -1

// Session is what a sign-in with a password begins.
type Session struct {
	Idle     time.Duration // how long it may lie unused
	Lifetime time.Duration // when it ends at the latest
	Tries    int           // wrong passwords of one name within a minute, ten times as many of one address
}

// ProxyPrefixes are the prefixes in TrustedProxies, which are valid.
func (a API) ProxyPrefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range a.TrustedProxies {
		if p, err := parsePrefix(text); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// Repair is putting content back to its number of copies.
type Repair struct {
	After time.Duration // a member that is down for longer has its content placed again
}

// Tracker is the fetching of what was placed on this node.
type Tracker struct {
	Concurrency  int           // pins fetched at the same time
	PerAccount   int           // pins of one account fetched at the same time, those that wait for a block included
	Attempts     int           // fetches of one pin before it is reported failed
	Backoff      time.Duration // wait before the second attempt; it doubles from there
	IdleTimeout  time.Duration // a fetch without a new block for this long has failed
	TotalTimeout time.Duration // a fetch that takes longer in all has failed
	MaxBytes     Size          // bytes of one pin; 0 means no bound but the account's
	MaxBlocks    int           // blocks of one pin
	MaxDepth     int           // depth of a pin's DAG
	MaxLinks     int           // links of one block
}

// Storage is what lies on the disk.
type Storage struct {
	SegmentSize Size // bytes at which a segment file of blocks is closed and the next begun
	Cache       Size // bytes of memory for the ordered store's block cache
	// Reserve and ReservePercent are kept free on every disk that the data folder
	// lies on, the smaller of both: new content is refused before.
	Reserve        Size
	ReservePercent int
	// ScrubCycle is the time within which every stored block is verified once.
	ScrubCycle time.Duration
	// StateCheck is the time between two comparisons of the replicated state on
	// all members.
	StateCheck time.Duration
}

// Log is what the node says about itself on standard error.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // text or json
}

// Default is the tree of defaults, without a data folder.
func Default() Config {
	return Config{
		Peer: Peer{
			Listen:        []string{"/ip4/0.0.0.0/tcp/4001", "/ip4/0.0.0.0/udp/4001/quic-v1"},
			ClusterListen: []string{"/ip4/0.0.0.0/tcp/9096"},
			Routing:       RoutingPublic,
			ServeRate:     16 * MiB,
		},
		Cluster:  Cluster{Replication: 3, WriteCopies: 2},
		Accounts: Accounts{Allowance: 500 * MiB},
		Pinning: Pinning{
			Listen: "127.0.0.1:9097", DefaultStatus: "pinned",
			Rates: Rates{AccountRate: 2000, AccountBurst: 10_000, AddressRate: 10_000, AddressBurst: 50_000},
		},
		S3: S3{
			Rates:  Rates{AccountBurst: 1000, AddressBurst: 5000}, // bursts count where a rate is set
			Listen: "127.0.0.1:9000", Region: "us-east-1", MaxObject: 5 * GiB, MinPart: 5_000_000, UploadAge: 7 * 24 * time.Hour, HashRate: 32 * MiB, PresignedV2: true,
		},
		Console: Console{Listen: "127.0.0.1:9001"},
		Admin:   Admin{Listen: "127.0.0.1:9094"},
		API: API{
			Rates:   Rates{AccountRate: Inherit, AccountBurst: Inherit, AddressRate: Inherit, AddressBurst: Inherit},
			Origins: []string{"*"}, NoisyRate: 125,
		},
		Session: Session{Idle: 24 * time.Hour, Lifetime: 30 * 24 * time.Hour, Tries: 5},
		Repair:  Repair{After: 10 * time.Minute},
		Tracker: Tracker{
			Concurrency:  128,
			PerAccount:   256,
			Attempts:     3,
			Backoff:      10 * time.Second,
			IdleTimeout:  5 * time.Minute,
			TotalTimeout: 24 * time.Hour,
			MaxBlocks:    10_000_000,
			MaxDepth:     4096,
			MaxLinks:     100_000,
		},
		Storage: Storage{SegmentSize: 256 * MiB, Cache: 64 * MiB, Reserve: GiB, ReservePercent: 5, ScrubCycle: maxScrubCycle, StateCheck: time.Hour},
		Log:     Log{Level: "info", Format: "text"},
	}
}
