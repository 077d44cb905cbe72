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

// Config has all settings of one node. cmd/holdfast loads it, and cluster/node copies the
// settings that each package needs into small structs. No other package of the program imports
// it.
type Config struct {
	// Data is the folder with all data of the node. It cannot be set in the settings file,
	// because the file is in it.
	Data string

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

// Node has the settings of the node itself.
type Node struct {
	Name string // name in commands and status; empty means the name of the host
	Zone string // location of the node, such as a rack or a data centre; empty: unknown
}

// Peer has the settings of the embedded IPFS peer: its public host and its cluster host.
type Peer struct {
	Listen              []string // multiaddrs of the public host
	ClusterListen       []string // multiaddrs of the cluster host
	Announce            []string // multiaddrs to announce instead of the listen addresses
	ClusterAnnounce     []string // multiaddrs that members dial instead of the listen addresses of the cluster host
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
	Join        []string // tickets or multiaddrs of members; a node that is a member uses them to find moved members
	JoinFile    string   // file with further entries of Join, see JoinFileEntries; empty: none
	SecretFile  string   // file that holds the cluster secret, see GivenSecret
	Secret      string   // the cluster secret itself, in hexadecimal, as in HOLDFAST_SECRET
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

// Credits has the settings of the credits that accounts pay for storage and requests.
type Credits struct {
	GBMonth         int           // credits for a GB-month above the allowance; 0: storage costs nothing
	MillionRequests int           // credits for a million requests; 0: requests cost nothing
	Period          time.Duration // interval between two charges of an account
	Grace           time.Duration // time for which an account without credits keeps the content above its allowance
}

// Pinning has the settings of the Pinning Service API.
type Pinning struct {
	Listen        string // host:port, empty is off
	DefaultStatus string // statuses of the pins that a list request without a status returns: "all" or names joined by commas
	Rates
}

// DefaultStatuses returns the statuses in DefaultStatus as a list. For "all" it returns every pin
// status.
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
	Region    string        // region in signatures and in the response to HEAD of a bucket
	Domain    string        // host name of virtual-hosted-style requests, BUCKET.Domain; empty: path style only
	MaxObject Size          // largest size of the content of one PUT
	MinPart   Size          // smallest size of a part of a multipart upload, except the last part
	UploadAge time.Duration // time after which the cluster discards an incomplete multipart upload
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
	OpenIDPrivate   bool     // permit providers on private and loopback addresses, and plain HTTP to them
	SignUp          string   // who may open an account: open, invited or off
	SecurityContact string   // contact URI in /.well-known/security.txt; empty: there is no such file
}

// Paid has the settings of the gateway with payment per request.
type Paid struct {
	Listen string // host:port, empty is off
	// PayTo is the EVM address that receives the payments. Facilitator is the URL of the x402
	// service that verifies and settles them. Both are required if Listen is set.
	PayTo, Facilitator string
	Network            string        // name in x402 version 1, such as base-sepolia
	Timeout            time.Duration // of one request to the facilitator
	// Asset, ChainID, AssetName and AssetVersion describe the token in which clients pay. Empty
	// and 0 mean the values of USDC on Network, if this package knows that network. See Terms.
	Asset                   string
	ChainID                 int
	AssetName, AssetVersion string
	PriceMiBHour            int  // price of 1 MiB for 1 h, in the smallest unit of the asset
	Minimum                 int  // smallest price of a request, in the smallest unit of the asset
	PerCopy                 bool // the price is for each copy in the cluster
	MinTTL, MaxTTL          time.Duration
	DefaultTTL              time.Duration
	MaxSize                 Size
	FacilitatorPrivate      bool // the host of Facilitator may resolve to a private address
}

// Gateway has the settings of the IPFS gateway.
type Gateway struct {
	Listen string   // host:port, empty is off
	Hosts  []string // host names below which each CID has a host of its own, as in CID.ipfs.HOST
	// AddressRate is the limit of requests per second of one client address, and AddressBurst the
	// number of requests that it can send at once. A rate of 0 means no limit.
	AddressRate, AddressBurst int
}

// Admin has the settings of metrics and health checks.
type Admin struct {
	Listen string // host:port, empty is off
}

// API has the settings that all HTTP APIs share.
type API struct {
	// Rates are the defaults of the rates of each API. With the value Inherit, each API has a
	// default of its own.
	Rates
	TrustedProxies  []string // addresses and prefixes whose X-Forwarded-For the node trusts
	Origins         []string // origins whose scripts CORS admits to the APIs; "*" means all
	TLSCert, TLSKey string   // files in PEM form; empty: plain HTTP
	// NoisyRate limits the requests of noisy accounts while the processors of this node or of
	// the leader are busy. It is the number of requests that the node starts per second and
	// processor for all noisy accounts. 0 means no limit.
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

// Inherit is the value of a rate or burst of API that the operator has not set. Each API then
// uses its own default.
const Inherit = -1

// Session has the settings of sessions. A session begins when a user logs in with a password.
type Session struct {
	Idle     time.Duration // time without use after which a session ends
	Lifetime time.Duration // longest time of a session
	Tries    int           // allowed wrong passwords per minute for one name; ten times as many are allowed from one address
}

// ProxyPrefixes returns TrustedProxies as parsed prefixes.
func (a API) ProxyPrefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range a.TrustedProxies {
		if p, err := parsePrefix(text); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// Repair has the settings of the repair of content that has too few copies.
type Repair struct {
	After time.Duration // downtime of a member after which the cluster copies its content to other members
}

// Tracker has the settings of the pin tracker, which fetches the content of pins to this node.
type Tracker struct {
	Concurrency  int           // largest number of concurrent fetches
	PerAccount   int           // largest number of concurrent fetches of one account, including those that wait for a block
	Attempts     int           // number of failed fetches after which a pin fails
	Backoff      time.Duration // pause between the first and the second fetch; it doubles with each further fetch
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
		Gateway: Gateway{AddressRate: 200, AddressBurst: 2000},
		Admin:   Admin{Listen: "127.0.0.1:9094"},
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
