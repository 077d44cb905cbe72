package config

import "fmt"

// rate describes one field of Rates: a limit for the requests to one API.
type rate struct {
	name, help string // name is the key without the section
	field      func(*Rates) *int
	check      check
}

// rates describes the fields of Rates, in the order of the settings file.
var rates = []rate{
	{
		"account_rate", "`requests` per second that one account can send to this node; 0 means no limit",
		func(r *Rates) *int { return &r.AccountRate }, between(0, maxRate),
	},
	{
		"account_burst", "`requests` that one account can send at once above account_rate; without effect if account_rate is 0",
		func(r *Rates) *int { return &r.AccountBurst }, between(1, maxCount),
	},
	{
		"address_rate", "`requests` per second that one address can send to this node; 0 means no limit",
		func(r *Rates) *int { return &r.AddressRate }, between(0, maxRate),
	},
	{
		"address_burst", "`requests` that one address can send at once above address_rate; without effect if address_rate is 0",
		func(r *Rates) *int { return &r.AddressBurst }, between(1, maxCount),
	},
}

// rateSettings returns the settings of the rates of one section, for table. of returns a pointer
// to the rates of that section.
func rateSettings(section string, of func(*Config) *Rates) []setting {
	rows := make([]setting, len(rates))
	for i, r := range rates {
		rows[i] = setting{
			key: section + "." + r.name, help: r.help, check: r.check,
			field: func(c *Config) any { return r.field(of(c)) },
		}
	}
	return rows
}

// inheritedRates returns the rate settings of the section api, for table. They are the defaults
// of the rates of the sections pinning and s3.
func inheritedRates() []setting {
	rows := rateSettings("api", func(c *Config) *Rates { return &c.API.Rates })
	for i := range rows {
		within := rows[i].check
		rows[i].help = fmt.Sprintf("default of pinning.%[1]s and s3.%[1]s; %[2]d means that each keeps its own default", rates[i].name, Inherit)
		rows[i].check = func(field any) error {
			if value, ok := field.(*int); ok && *value == Inherit {
				return nil
			}
			return within(field)
		}
	}
	return rows
}

// settleRates copies each rate of the section api to the sections pinning and s3, unless origin
// shows that they set that rate themselves. It does not copy Inherit and other invalid values, so
// that Load reports an invalid value only once.
func settleRates(c *Config, origin map[string]source) {
	for section, own := range map[string]*Rates{"pinning": &c.Pinning.Rates, "s3": &c.S3.Rates} {
		for _, r := range rates {
			all := r.field(&c.API.Rates)
			if _, given := origin[section+"."+r.name]; !given && r.check(all) == nil {
				*r.field(own) = *all
			}
		}
	}
}
