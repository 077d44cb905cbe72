package config

import (
	"strings"
	"testing"
)

// Load refuses settings of the paid gateway that lose money or cannot work, with an error that names the setting. If
// the gateway is off, it needs no settings.
func TestThePaidGatewayNeedsToKnowWhomToPay(t *testing.T) {
	const payTo = "pay_to = \"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed\"\n"
	const facilitator = "facilitator = \"http://127.0.0.1:4021\"\n"
	listen := []string{"--paid-listen=127.0.0.1:0"}
	for _, tc := range []struct {
		name, file string
		args       []string
		want       string // "": it starts
	}{
		{"off", "", nil, ""},
		{"off, with the rest", payTo + facilitator, nil, ""},
		{"on", payTo + facilitator, listen, ""},
		{"mainnet", payTo + facilitator + "network = \"base\"\n", listen, ""},
		{"without pay_to", facilitator, listen, "paid.pay_to"},
		{"without a facilitator", payTo, listen, "paid.facilitator"},
		{"a wrong digit", strings.Replace(payTo, "eAed", "eAee", 1) + facilitator, listen, "EIP-55"},
		{"plain http", payTo + "facilitator = \"http://example.org\"\n", listen, "no TLS"},
		{"unknown network", payTo + facilitator + "network = \"mars\"\n", listen, "paid.asset_name"},
		{"name of version 2", payTo + facilitator + "network = \"eip155:84532\"\n", listen, "paid.network"},
		{
			"unknown network with its asset",
			payTo + facilitator + "network = \"mars\"\nchain_id = 7\nasset = \"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed\"\nasset_name = \"M\"\nasset_version = \"1\"\n", listen, "",
		},
		{"another asset without its name", payTo + facilitator + "asset = \"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed\"\n", listen, "paid.network"},
		{"free", payTo + facilitator + "minimum = 0\n", listen, "paid.minimum"},
		{"default time outside", payTo + facilitator + "default_ttl = \"1s\"\n", listen, "paid.default_ttl"},
		{"times in the wrong order", payTo + facilitator + "min_ttl = \"2h\"\nmax_ttl = \"1h\"\n", listen, "paid.min_ttl"},
		{"port of the object gateway", payTo + facilitator, []string{"--paid-listen=127.0.0.1:9000"}, "--s3-listen"},
	} {
		_, err := load(t, "[paid]\n"+tc.file, nil, tc.args)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// Terms returns the asset, the chain id and the title of each network of the table. The address of the asset is valid
// and has its checksum.
func TestKnownNetworksAreComplete(t *testing.T) {
	for _, n := range networks {
		p := Paid{Network: n.name}
		a, ok := p.Terms()
		if !ok || !strings.EqualFold(a.Address, n.asset) || a.ChainID != n.chainID || a.Name != n.title {
			t.Errorf("%s: %+v", n.name, a)
		}
		if err := address(&a.Address); err != nil {
			t.Error(err)
		}
		if n.asset != strings.ToLower(n.asset) && n.asset != a.Address {
			t.Errorf("%s: %s has the checksum of %s", n.name, n.asset, a.Address)
		}
	}
}
