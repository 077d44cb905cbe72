package config

import "fmt"

// ratesOf gives the place of the rates of one API in the tree.
type ratesOf func(*Config) *Rates

func accountRate(section string, of ratesOf) setting {
	return setting{
		key: section + ".account_rate", help: "`requests` a second that one account may send to this node; 0 is no limit",
		field: func(c *Config) any { return &of(c).AccountRate }, check: between(0, maxRate),
	}
}

func accountBurst(section string, of ratesOf) setting {
	return setting{
		key: section + ".account_burst", help: "`requests` that one account may send at once, where account_rate is a limit",
		field: func(c *Config) any { return &of(c).AccountBurst }, check: between(1, maxCount),
	}
}

func addressRate(section string, of ratesOf) setting {
	return setting{
		key: section + ".address_rate", help: "`requests` a second that one address may send to this node; 0 is no limit",
		field: func(c *Config) any { return &of(c).AddressRate }, check: between(0, maxRate),
	}
}

func addressBurst(section string, of ratesOf) setting {
	return setting{
		key: section + ".address_burst", help: "`requests` that one address may send at once, where address_rate is a limit",
		field: func(c *Config) any { return &of(c).AddressBurst }, check: between(1, maxCount),
	}
}

// inherited is a setting of a rate that counts for each API that does not set its own.
func inherited(s setting) setting {
	within := s.check
	s.help = fmt.Sprintf("as the setting of this name of pinning and s3, for those that do not set it; %d leaves them their defaults", Inherit)
	s.check = func(field any) error {
		if value, ok := field.(*int); ok && *value == Inherit {
			return nil
		}
		return within(field)
	}
	return s
}

// settleRates gives each API the rates of api that it does not set. origin has the settings
// that some place gave.
func settleRates(c *Config, origin map[string]source) {
	for section, own := range map[string]*Rates{"pinning": &c.Pinning.Rates, "s3": &c.S3.Rates} {
		for _, r := range []struct {
			name string
			all  int
			own  *int
		}{
			{"account_rate", c.API.AccountRate, &own.AccountRate},
			{"account_burst", c.API.AccountBurst, &own.AccountBurst},
			{"address_rate", c.API.AddressRate, &own.AddressRate},
			{"address_burst", c.API.AddressBurst, &own.AddressBurst},
		} {
			if _, given := origin[section+"."+r.name]; !given && r.all != Inherit {
				*r.own = r.all
			}
		}
	}
}
