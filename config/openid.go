package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Limits of the settings of OpenID providers.
const (
	maxProviders  = 16
	maxValue      = 1024 // bytes of one text
	maxClientFile = 4096 // bytes of a file with a client secret
)

// OpenID is one OpenID provider: a table [[console.oidc]] of the settings file.
type OpenID struct {
	Name             string   // shown on the login page; empty means the host of Issuer
	Issuer           string   // issuer URL, exactly as the provider publishes it
	ClientID         string   // id of the console at the provider
	ClientSecret     string   // secret of ClientID
	ClientSecretFile string   // file that has the secret, instead of ClientSecret
	Scopes           []string // in addition to openid and email
	Domains          []string // e-mail domains that may sign in; empty: all
	Admins           []string // e-mail addresses that become administrators
}

// Values of console.sign_up.
const (
	SignUpOpen    = "open"
	signUpInvited = "invited"
	signUpOff     = "off"
)

// fields returns the keys of a table [[console.oidc]], each with a pointer to the field that
// stores its value. The documentation shows the keys in this order.
func (p *OpenID) fields() []struct {
	name  string
	field any
} {
	return []struct {
		name  string
		field any
	}{
		{"name", &p.Name},
		{"issuer", &p.Issuer},
		{"client_id", &p.ClientID},
		{"client_secret", &p.ClientSecret},
		{"client_secret_file", &p.ClientSecretFile},
		{"scopes", &p.Scopes},
		{"domains", &p.Domains},
		{"admins", &p.Admins},
	}
}

// providersFromFile parses the value of console.oidc in the settings file: a list of tables. It
// does not validate the values of the providers.
func providersFromFile(value any) ([]OpenID, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, errors.New("it is a list of tables: begin each with [[console.oidc]]")
	}
	if len(list) > maxProviders {
		return nil, fmt.Errorf("%d tables, at most %d are allowed", len(list), maxProviders)
	}
	all := make([]OpenID, len(list))
	for i, entry := range list {
		keys, ok := entry.(map[string]any)
		if !ok {
			return nil, errors.New("it is a list of tables: begin each with [[console.oidc]]")
		}
		p := &all[i]
		for _, f := range p.fields() {
			if value, ok := keys[f.name]; ok {
				if err := fromFile(f.field, value); err != nil {
					if f.name == "client_secret" {
						err = errors.New("it must be a string in quotes")
					}
					return nil, fmt.Errorf("table %d: %s: %w", i+1, f.name, err)
				}
				delete(keys, f.name)
			}
		}
		for unknown := range keys {
			return nil, fmt.Errorf("table %d: unknown key %q", i+1, unknown)
		}
		p.settle()
	}
	return all, nil
}

// settle sets an empty Name to the host of Issuer, and changes Domains and Admins to lower case.
func (p *OpenID) settle() {
	if u, err := url.Parse(p.Issuer); err == nil && p.Name == "" {
		p.Name = u.Host
	}
	for _, list := range [][]string{p.Domains, p.Admins} {
		for i := range list {
			list[i] = strings.ToLower(list[i])
		}
	}
}

// formatProviders returns the names and issuers of providers as a TOML array. It omits the
// secrets.
func formatProviders(all []OpenID) string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = "{name = " + strconv.Quote(all[i].Name) + ", issuer = " + strconv.Quote(all[i].Issuer) + "}"
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// providers is a check that accepts a list of valid OpenID providers with different ids.
func providers(field any) error {
	all, ok := field.(*[]OpenID)
	if !ok {
		return fmt.Errorf("%T is no list of providers", field)
	}
	var names []string
	for i := range *all {
		p := &(*all)[i]
		if err := p.check(); err != nil {
			return fmt.Errorf("table %d: %w", i+1, err)
		}
		name := p.ID()
		if name == "" || slices.Contains(names, name) {
			return fmt.Errorf("table %d: name %q needs a letter or digit, and differs from the other names in letters and digits", i+1, p.Name)
		}
		names = append(names, name)
	}
	return nil
}

// ID returns the name of a provider for use in URL paths. It consists of the letters a to z and
// the digits of Name in lower case, with one hyphen between them for each run of other
// characters.
func (p *OpenID) ID() string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(p.Name), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }), "-")
}

func (p *OpenID) check() error {
	u, err := url.Parse(p.Issuer)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("issuer %q is not a URL such as https://accounts.example.org", p.Issuer)
	case p.ClientID == "":
		return errors.New("client_id is missing")
	case (p.ClientSecret == "") == (p.ClientSecretFile == ""):
		return errors.New("give either client_secret or client_secret_file")
	}
	if err := shortText(&p.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	for _, f := range p.fields() {
		switch v := f.field.(type) {
		case *string:
			if len(*v) > maxValue {
				return fmt.Errorf("%s has more than %d bytes", f.name, maxValue)
			}
		case *[]string:
			if err := entries(v); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	for _, d := range p.Domains {
		if err := hostName(&d); err != nil {
			return fmt.Errorf("domains: %w", err)
		}
	}
	for _, a := range p.Admins {
		if at := strings.IndexByte(a, '@'); at < 1 || at == len(a)-1 {
			return fmt.Errorf("admins: %q is not an e-mail address", a)
		}
	}
	return nil
}

// OpenIDProviders returns the providers with their client secrets. It reads the secret of a
// provider with a ClientSecretFile from that file. If it cannot read the file, or the file is
// empty, it returns an *Error that names the provider.
func (c Config) OpenIDProviders() ([]OpenID, error) {
	all := slices.Clone(c.Console.OpenID)
	for i := range all {
		p := &all[i]
		if p.ClientSecretFile == "" {
			continue
		}
		raw, err := readBounded(p.ClientSecretFile, maxClientFile)
		if err == nil {
			if p.ClientSecret = strings.TrimSpace(string(raw)); p.ClientSecret == "" {
				err = fmt.Errorf("%s is empty", p.ClientSecretFile)
			}
		}
		if err != nil {
			return nil, asError([]Problem{{Key: "console.oidc", Detail: fmt.Sprintf("table %d: client_secret_file: %v", i+1, err)}})
		}
	}
	return all, nil
}

// webOrigin is a check that accepts an empty string, and the origin of a website: http or https
// and a host, without a path.
func webOrigin(field any) error {
	value := deref(field.(*string))
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || value != u.Scheme+"://"+u.Host || strings.ToLower(value) != value {
		return fmt.Errorf("%q is not an origin such as https://console.example.org, without a path", value)
	}
	return nil
}

// contact is a check that accepts an empty string, and a contact URI of section 2.5.3 of RFC 9116
// (security.txt).
func contact(field any) error {
	value := deref(field.(*string))
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil || len(value) > maxValue || strings.ContainsFunc(value, func(r rune) bool { return r > '~' || unicode.IsSpace(r) || unicode.IsControl(r) }) ||
		!slices.Contains([]string{"mailto", "https", "tel"}, u.Scheme) || u.Opaque == "" && u.Host == "" {
		return fmt.Errorf("%q is not a URI such as mailto:security@example.org or https://example.org/security", value)
	}
	return nil
}

// signIn returns the problems of OpenID and sign-up settings of the console that depend on each
// other. origin returns the source of the value of a setting.
func (c *Config) signIn(origin func(setting) source) []Problem {
	var found []Problem
	at := func(key string) string {
		return origin(table[slices.IndexFunc(table, func(s setting) bool { return s.key == key })]).name
	}
	if len(c.Console.OpenID) > 0 && c.Console.URL == "" {
		found = append(found, Problem{
			Key: "console.url", Source: at("console.oidc"),
			Detail: "OpenID providers need the origin of the console, such as https://console.example.org, because they send browsers back to it",
		})
	}
	if c.Console.SignUp == SignUpOpen && len(c.Console.OpenID) == 0 {
		found = append(found, Problem{
			Key: "console.sign_up", Source: at("console.sign_up"),
			Detail: "open needs a provider in [[console.oidc]], because nothing else proves an e-mail address",
		})
	}
	for i, p := range c.Console.OpenID {
		if strings.HasPrefix(p.Issuer, "http://") && !c.Console.OpenIDPrivate {
			found = append(found, Problem{
				Key: "console.oidc", Source: at("console.oidc"),
				Detail: fmt.Sprintf("table %d: issuer %q is not https, which only console.oidc_private allows", i+1, p.Issuer),
			})
		}
	}
	return found
}
