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

// Config has all settings of one node. Other packages do not use Config; cluster/node makes
// their own small structs from it.
type Config struct {
	// Data is the folder with all data of the node. It cannot be set in the settings file,
	// because the file is in it.
	Data string

	// Unserved lists the settings without effect in this release that the operator has set.
	// The caller logs them.
	Unserved []Unserved

	secretFrom *source // the source of Cluster.SecretFile; nil if it was set in code

	Node     Node
	Peer     Peer
	Cluster  Cluster
	Accounts Accounts
	Credits  Credits
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

// Unserved is a setting without effect in this release.
type Unserved struct {
	Key    string // section.name
	Source string // file, variable or flag that set it
}

// Node has the settings of the node itself.
type Node struct {
	Name string // name in commands and status; empty means the name of the host
	Zone string // where the node stands, such as a rack or a data centre; empty: unknown
}

// Peer has the settings of the embedded IPFS peer: its public host and its cluster host.
type Peer struct {
	Listen              []string // multiaddrs of the public host
	ClusterListen       []string // multiaddrs of the cluster host
	Announce            []string // multiaddrs to announce instead of the listen addresses
	Routing             string   // one of the Routing constants
	Bootstrap           []string // multiaddrs with /p2p/; empty means those of the public network
	AllowPrivateOrigins bool     // dial user-given origins on private and loopback addresses
	ServeRate           Size     // bytes per second for all unknown peers together
}

// Ways to find providers in the IPFS network, values of peer.routing.
const (
	RoutingOff    = "off"
	RoutingLAN    = "lan"
	RoutingPublic = "public"
)

// Cluster has the settings of membership and replication.
type Cluster struct {
	Join        []string // tickets or bootstrap multiaddrs; a member looks there for moved members
	SecretFile  string   // file that holds the cluster secret, see GivenSecret
	Secret      string   // the cluster secret itself, as in HOLDFAST_SECRET
	Replication int      // copies of pins and objects, used when the cluster is created
	WriteCopies int      // durable copies before an acknowledgement; all copies if there are fewer
	// Heartbeat is the time without a heartbeat from the leader after which members elect
	// another.
	Heartbeat AutoDuration
}

// Accounts has the settings of new accounts.
type Accounts struct {
	Allowance Size // bytes that a new account can store without credits
}

// Credits has the settings of charges for storage and requests.
type Credits struct {
	GBMonth         int           // credits for a GB-month above the allowance; 0: storage costs nothing
	MillionRequests int           // credits for a million requests; 0: requests cost nothing
	Period          time.Duration // length of the periods that are charged
	Grace           time.Duration // time for which content stays when the credits are used up
}

// Pinning has the settings of the Pinning Service API.
type Pinning struct {
	Listen        string // host:port, empty is off
	DefaultStatus string // statuses that a list without a status shows: "all" or names joined by commas
	Rates
}

// DefaultStatuses returns the statuses in DefaultStatus; for "all" it returns every status.
func (p Pinning) DefaultStatuses() []string {
	if p.DefaultStatus == statusAll {
		return slices.Clone(pinStatuses)
	}
	return strings.Split(p.DefaultStatus, ",")
}

// S3 has the settings of the S3 gateway.
type S3 struct {
	Rates
	Listen    string        // host:port, empty is off
	Region    string        // region in signatures and in the answer to HEAD of a bucket
	Domain    string        // each bucket is also a host under this one; empty means path style only
	MaxObject Size          // largest size of one PUT
	MinPart   Size          // smallest size of each part of an upload but the last
	UploadAge time.Duration // time after which the cluster discards an open upload
	HashRate  Size          // bytes per second that the node reads to compute missing BLAKE3 hashes
	// PresignedV2 accepts presigned URLs of signature version 2, the default of boto3.
	PresignedV2 bool
}

// Console has the settings of the web console.
type Console struct {
	Listen          string   // host:port, empty is off
	URL             string   // origin at which people reach the console; empty: unknown
	IPFSGateway     string   // origin of the IPFS gateway that pages link to; empty: none
	OpenID          []OpenID // providers at which people sign in
	OpenIDPrivate   bool     // dial providers on private and loopback addresses
	SignUp          string   // who may open an account: open, invited or off
	SecurityContact string   // URI for reports of security problems; empty: none
}

// Paid has the settings of the gateway with payment per request.
type Paid struct {
	Listen string // host:port, empty is off
	// PayTo is the address that is paid, and Facilitator the URL of the service that verifies and
	// settles payments. Both are required if Listen is set.
	PayTo, Facilitator string
	Network            string        // name in x402 version 1, such as base-sepolia
	Timeout            time.Duration // of one request to the facilitator
	// Asset, ChainID, AssetName and AssetVersion describe the asset. Empty and 0 mean those of
	// USDC on a known network, see Terms.
	Asset                   string
	ChainID                 int
	AssetName, AssetVersion string
	PriceMiBHour            int  // atomic units for 1 MiB and 1 h
	Minimum                 int  // atomic units of the smallest price
	PerCopy                 bool // the price is for each copy in the cluster
	MinTTL, MaxTTL          time.Duration
	DefaultTTL              time.Duration
	MaxSize                 Size
	FacilitatorPrivate      bool // the name of the facilitator may lead to a private address
}

// Gateway has the settings of the IPFS gateway.
type Gateway struct {
	Listen string   // host:port, empty is off
	Hosts  []string // host names below which each CID has a host of its own
}

// Admin has the settings of metrics and health checks.
type Admin struct {
	Listen string // host:port, empty is off
}

// API has the settings that all HTTP APIs share.
type API struct {
	// Rates apply to each API that does not set its own. Inherit keeps the default of each API.
	Rates
	TrustedProxies  []string // addresses and prefixes whose X-Forwarded-For the node trusts
	Origins         []string // origins whose scripts can use the API from a browser; "*" means all
	TLSCert, TLSKey string   // files in PEM form; empty: plain HTTP
	// NoisyRate is the number of requests per second and processor that the node starts for
	// noisy accounts while its processors or those of the leader are busy.
	// 0 means no limit.
	NoisyRate int
}

// Rates are the rate limits of one API on this node.
type Rates struct {
	// AccountRate is the limit of requests per second of one account, and AccountBurst the
	// number of requests that it can send at once. AddressRate and AddressBurst apply to one
	// address. A rate of 0 means no limit.
	AccountRate, AccountBurst int
	AddressRate, AddressBurst int
}

// Inherit is the value of a rate or burst in API that is not set.
const Inherit = -1

// Session has the settings of sessions, which begin with a password.
type Session struct {
	Idle     time.Duration // time without use after which a session ends
	Lifetime time.Duration // longest time of a session
	Tries    int           // allowed wrong passwords per minute for one name; ten times as many are allowed from one address
}

// ProxyPrefixes returns the parsed TrustedProxies.
func (a API) ProxyPrefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range a.TrustedProxies {
		if p, err := parsePrefix(text); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// Repair has the settings of the repair of under-replicated content.
type Repair struct {
	After time.Duration // time that a member is down before its content is placed on others
}

// Tracker has the settings of fetches of pins on this node.
type Tracker struct {
	Concurrency  int           // largest number of concurrent fetches
	PerAccount   int           // largest number of concurrent fetches of one account, including those that wait for a block
	Attempts     int           // fetches after which a pin fails
	Backoff      time.Duration // time between the first and the second fetch; it doubles for later ones
	IdleTimeout  time.Duration // time without a new block after which a fetch fails
	TotalTimeout time.Duration // longest time of a fetch
	MaxBytes     Size          // largest size of a pin; 0 means that only the account limits it
	MaxBlocks    int           // largest number of blocks of a pin
	MaxDepth     int           // largest depth of the DAG of a pin
	MaxLinks     int           // largest number of links of a block
}

// Storage has the settings of the disk.
type Storage struct {
	SegmentSize Size // size at which the store closes a segment file of blocks
	Cache       Size // size of the memory cache of the key-value store
	// Reserve and ReservePercent are the space that the node keeps free on each disk of the
	// data folder. The smaller one applies. With less free space the node refuses new content.
	Reserve        Size
	ReservePercent int
	// ScrubCycle is the time within which the node verifies every stored block once.
	ScrubCycle time.Duration
	// StateCheck is the time between two comparisons of the replicated state of all members.
	StateCheck time.Duration
}

// Log has the settings of the log on standard error.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // text or json
}

// Default returns the default settings, without a data folder.
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
		Credits:  Credits{Period: time.Hour, Grace: 7 * 24 * time.Hour},
		Pinning: Pinning{
			Listen: "127.0.0.1:9097", DefaultStatus: "pinned",
			Rates: Rates{AccountRate: 2000, AccountBurst: 10_000, AddressRate: 10_000, AddressBurst: 50_000},
		},
		S3: S3{
			Rates:  Rates{AccountBurst: 1000, AddressBurst: 5000}, // bursts count where a rate is set
			Listen: "127.0.0.1:9000", Region: "us-east-1", MaxObject: 5 * GiB, MinPart: 5_000_000, UploadAge: 7 * 24 * time.Hour, HashRate: 32 * MiB, PresignedV2: true,
		},
		Console: Console{Listen: "127.0.0.1:9001", SignUp: signUpOff},
		Paid: Paid{
			Network: "base-sepolia", Timeout: 10 * time.Second, PriceMiBHour: 10_000, Minimum: 1_000,
			MinTTL: time.Minute, MaxTTL: 30 * 24 * time.Hour, DefaultTTL: time.Hour, MaxSize: 5 * GiB,
		},
		Admin: Admin{Listen: "127.0.0.1:9094"},
		API: API{
			Rates:   Rates{AccountRate: Inherit, AccountBurst: Inherit, AddressRate: Inherit, AddressBurst: Inherit},
			Origins: []string{"*"}, NoisyRate: 50,
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
