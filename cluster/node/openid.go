package node

import (
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/openid"
	"github.com/holdfast-ipfs/holdfast/config"
)

// openProviders returns the OpenID providers in the settings. It reads the files with their
// client secrets, but does not contact the providers.
func openProviders(c config.Config, now func() time.Time) (*openid.Providers, error) {
	settings, err := c.OpenIDProviders()
	if err != nil {
		return nil, err
	}
	o := openid.Options{URL: c.Console.URL, Private: c.Console.OpenIDPrivate, Now: now}
	for i := range settings {
		p := &settings[i]
		o.Providers = append(o.Providers, openid.Config{
			ID: p.ID(), Name: p.Name, Issuer: p.Issuer, ClientID: p.ClientID, ClientSecret: p.ClientSecret,
			Scopes: p.Scopes, Domains: p.Domains, Admins: p.Admins,
		})
	}
	return openid.New(o), nil
}
