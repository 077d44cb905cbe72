package config

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/evm"
	"github.com/holdfast-ipfs/holdfast/internal/publicip"
)

// Limits of the settings of the paid gateway.
const (
	maxPrice     = 1_000_000_000_000 // atomic units
	maxPaidTTL   = 10 * 366 * 24 * time.Hour
	maxPayTime   = time.Minute
	minPayTime   = 100 * time.Millisecond
	maxAssetName = 64 // characters
)

// network is an EVM network with the USDC token on it.
type network struct {
	name                 string
	chainID              int
	asset, title, domain string // address of the token, and the name and version of its EIP-712 domain
}

// networks are the networks that need no paid.asset. The names, chain ids, addresses and EIP-712
// names are those of the npm package x402 1.2.0 (dist/cjs/types/index.js), and version 2 is that of
// its getDefaultAsset. The token on skale-base-sepolia signs with version 1.
var networks = []network{
	{"base", 8453, "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "USD Coin", "2"},
	{"base-sepolia", 84532, "0x036CbD53842c5426634e7929541eC2318f3dCF7e", "USDC", "2"},
	{"avalanche", 43114, "0xB97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E", "USD Coin", "2"},
	{"avalanche-fuji", 43113, "0x5425890298aed601595a70AB815c96711a31Bc65", "USD Coin", "2"},
	{"polygon", 137, "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359", "USD Coin", "2"},
	{"polygon-amoy", 80002, "0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582", "USDC", "2"},
	{"sei", 1329, "0xe15fc38f6d8c56af07bbcbe3baf5708a2bf42392", "USDC", "2"},
	{"sei-testnet", 1328, "0x4fcf1784b31630811181f670aea7a7bef803eaed", "USDC", "2"},
	{"iotex", 4689, "0xcdf79194c6c285077a58da47641d4dbe51f63542", "Bridged USDC", "2"},
	{"peaq", 3338, "0xbbA60da06c2c5424f03f7434542280FCAd453d10", "USDC", "2"},
	{"story", 1514, "0xF1815bd50389c46847f0Bda824eC8da914045D14", "Bridged USDC", "2"},
	{"educhain", 41923, "0x12a272A581feE5577A5dFa371afEB4b2F3a8C2F8", "Bridged USDC (Stargate)", "2"},
	{"abstract", 2741, "0x84a71ccd554cc1b02749b35d22f684cc8ec987e1", "Bridged USDC", "2"},
	{"abstract-testnet", 11124, "0xe4C7fBB0a626ed208021ccabA6Be1566905E2dFc", "Bridged USDC", "2"},
	{"skale-base-sepolia", 324705682, "0x2e08028E3C4c2356572E096d8EF835cD5C6030bD", "Bridged USDC (SKALE Bridge)", "1"},
}

// Asset is the token in which clients of the paid gateway pay.
type Asset struct {
	ChainID       int
	Address       string // address of the token contract, in the mixed case of EIP-55
	Name, Version string // name and version of its EIP-712 domain
}

// Terms returns the token in which clients pay. For fields that the settings leave empty, it uses
// the values of USDC on the network, if networks has that network. Name and version of USDC are
// not used for another token. ok is false if a field is still empty.
func (p *Paid) Terms() (a Asset, ok bool) {
	i := slices.IndexFunc(networks, func(n network) bool { return n.name == p.Network })
	var known network
	if i >= 0 {
		known = networks[i]
	}
	a = Asset{ChainID: cmp.Or(p.ChainID, known.chainID), Address: cmp.Or(p.Asset, known.asset)}
	if own, err := evm.ParseAddress(a.Address); err == nil {
		a.Address = evm.Checksum(own)
	}
	a.Name, a.Version = p.AssetName, p.AssetVersion
	if p.Asset == "" || strings.EqualFold(p.Asset, known.asset) { // the name of one asset is not that of another
		a.Name, a.Version = cmp.Or(a.Name, known.title), cmp.Or(a.Version, known.domain)
	}
	return a, a.ChainID != 0 && a.Address != "" && a.Name != "" && a.Version != ""
}

// paid returns the problems of settings of the paid gateway that depend on each other.
func (c *Config) paid() (found []Problem) {
	add := func(key, format string, args ...any) {
		found = append(found, Problem{Key: key, Detail: fmt.Sprintf(format, args...)})
	}
	p := &c.Paid
	if p.MinTTL > p.MaxTTL {
		add("paid.min_ttl", "it is longer than paid.max_ttl")
	} else if p.DefaultTTL < p.MinTTL || p.DefaultTTL > p.MaxTTL {
		add("paid.default_ttl", "it is not between paid.min_ttl and paid.max_ttl")
	}
	if p.Listen == "" {
		return found
	}
	if p.PayTo == "" {
		add("paid.pay_to", "the paid gateway (--paid-listen) needs the address that is paid, such as 0x and 40 hexadecimal digits")
	}
	if p.Facilitator == "" {
		add("paid.facilitator", "the paid gateway (--paid-listen) needs the URL of a facilitator, which verifies and settles payments")
	}
	if _, ok := p.Terms(); !ok {
		add("paid.network", "%q is not a network that Holdfast knows (%s): set paid.chain_id, paid.asset, paid.asset_name and paid.asset_version too", p.Network, knownNetworks())
	}
	return found
}

func knownNetworks() string {
	var names []string
	for _, n := range networks {
		names = append(names, n.name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// paidSettings returns the settings of the section paid, for table.
func paidSettings() []setting {
	return []setting{
		{
			key: "paid.listen", flag: "paid-listen", help: "`host:port` of the gateway with payment per request; empty turns it off",
			field: func(c *Config) any { return &c.Paid.Listen }, check: hostPort,
		},
		{
			key: "paid.pay_to", help: "`address` that receives the payments, 0x and 40 hexadecimal digits",
			field: func(c *Config) any { return &c.Paid.PayTo }, check: address,
		},
		{
			key: "paid.network", help: "`name` of the network on which clients pay, such as base or base-sepolia",
			field: func(c *Config) any { return &c.Paid.Network }, check: networkName,
		},
		{
			key: "paid.facilitator", help: "`URL` of the facilitator of the x402 protocol, which verifies and settles payments",
			field: func(c *Config) any { return &c.Paid.Facilitator }, check: serviceURL,
		},
		{
			key: "paid.facilitator_private", help: "dial a facilitator whose name leads to a private or loopback address",
			field: func(c *Config) any { return &c.Paid.FacilitatorPrivate },
		},
		{
			key: "paid.timeout", help: "longest `time` of one request to the facilitator",
			field: func(c *Config) any { return &c.Paid.Timeout }, check: between(minPayTime, maxPayTime),
		},
		{
			key: "paid.asset", help: "`address` of the asset's contract, which has to support EIP-3009; empty means USDC of a known network",
			field: func(c *Config) any { return &c.Paid.Asset }, check: address,
		},
		{
			key: "paid.chain_id", help: "`number` of the chain; 0 means the chain of a known network",
			field: func(c *Config) any { return &c.Paid.ChainID }, check: between(0, math.MaxInt),
		},
		{
			key: "paid.asset_name", help: "`name` in the EIP-712 domain of the asset; empty means the value of USDC on a known network",
			field: func(c *Config) any { return &c.Paid.AssetName }, check: assetText,
		},
		{
			key: "paid.asset_version", help: "`version` in the EIP-712 domain of the asset; empty means the value of USDC on a known network",
			field: func(c *Config) any { return &c.Paid.AssetVersion }, check: assetText,
		},
		{
			key: "paid.price_mib_hour", help: "price of 1 MiB for 1 h in atomic `units` of the asset, for USDC millionths of a dollar",
			field: func(c *Config) any { return &c.Paid.PriceMiBHour }, check: between(0, maxPrice),
		},
		{
			key: "paid.minimum", help: "smallest price in atomic `units` of the asset, also that of a deletion",
			field: func(c *Config) any { return &c.Paid.Minimum }, check: between(1, maxPrice),
		},
		{
			key: "paid.per_copy", help: "multiply the price by the number of copies in the cluster",
			field: func(c *Config) any { return &c.Paid.PerCopy },
		},
		{
			key: "paid.min_ttl", help: "shortest `time` that a client can pay for",
			field: func(c *Config) any { return &c.Paid.MinTTL }, check: between(time.Second, maxPaidTTL),
		},
		{
			key: "paid.max_ttl", help: "longest `time` that a client can pay for at once",
			field: func(c *Config) any { return &c.Paid.MaxTTL }, check: between(time.Second, maxPaidTTL),
		},
		{
			key: "paid.default_ttl", help: "`time` that a client pays for if it names none",
			field: func(c *Config) any { return &c.Paid.DefaultTTL }, check: between(time.Second, maxPaidTTL),
		},
		{
			key: "paid.max_size", help: "largest `size` of a paid object or pin",
			field: func(c *Config) any { return &c.Paid.MaxSize }, check: between[Size](1, maxObject),
		},
	}
}

// address is a check that accepts an empty string, and an EVM address.
func address(field any) error {
	text := deref(field.(*string))
	if text == "" {
		return nil
	}
	if _, err := evm.ParseAddress(text); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	return nil
}

// networkName is a check that accepts the name of a network in the form of x402 version 1, such
// as base-sepolia. It rejects a name with a colon, which is the form of version 2, because
// clients of version 1 do not accept that form.
func networkName(field any) error {
	text := deref(field.(*string))
	if text == "" || len(text) > maxNameRunes || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("%q is not a name of lower case letters, digits and hyphens, such as base-sepolia", text)
	}
	return nil
}

// serviceURL is a check that accepts an empty string, and the URL of an external service.
func serviceURL(field any) error {
	text := deref(field.(*string))
	if text == "" {
		return nil
	}
	return publicip.CheckService(text)
}

// assetText is a check that accepts a name or version of the EIP-712 domain of a token: at most
// maxAssetName printable ASCII characters.
func assetText(field any) error {
	text := deref(field.(*string))
	if len(text) > maxAssetName || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) {
		return fmt.Errorf("%q is not a text of at most %d ASCII characters", text, maxAssetName)
	}
	return nil
}
