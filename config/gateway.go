package config

import "fmt"

// gatewaySettings returns the settings of the section gateway, for table.
func gatewaySettings() []setting {
	rows := []setting{
		{
			key: "gateway.listen", flag: "gateway-listen", help: "`host:port` of the IPFS gateway, which serves public content to everybody; empty turns it off",
			field: func(c *Config) any { return &c.Gateway.Listen }, check: hostPort,
		},
		{
			key: "gateway.hosts", help: "`host name` of the IPFS gateway below which each CID has a host of its own (CID.ipfs.HOST)",
			field: func(c *Config) any { return &c.Gateway.Hosts }, check: allOf(entries, hostNames),
		},
	}
	for _, r := range rates { // requests have no account
		switch r.name {
		case "address_rate":
			rows = append(rows, setting{key: "gateway." + r.name, help: r.help, check: r.check, field: func(c *Config) any { return &c.Gateway.AddressRate }})
		case "address_burst":
			rows = append(rows, setting{key: "gateway." + r.name, help: r.help, check: r.check, field: func(c *Config) any { return &c.Gateway.AddressBurst }})
		}
	}
	return rows
}

// hostNames is a check that accepts a list of host names in lower case without ports.
func hostNames(field any) error {
	list, ok := field.(*[]string)
	if !ok {
		return fmt.Errorf("%T is not a list", field)
	}
	for _, name := range *list {
		if err := hostName(&name); err != nil {
			return err
		}
	}
	return nil
}
