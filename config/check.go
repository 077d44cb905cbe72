package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/multiformats/go-multiaddr"
)

// check validates the value of one setting. field is a pointer to the field of Config that stores
// the value. The error says what is wrong with the value.
type check func(field any) error

// statusAll is the value of pinning.default_status that stands for all pin statuses.
const statusAll = "all"

// pinStatuses are the states of a pin in the Pinning Service API 1.0.0.
var pinStatuses = []string{"queued", "pinning", "pinned", "failed"}

// Validate returns an *Error with all problems of c, or nil. Load calls it.
func (c Config) Validate() error {
	return asError(c.problems(func(setting) source { return source{} }))
}

// problems validates each setting, and then the combinations of settings that depend on each
// other. origin returns the source from which the value of a setting came; each problem names
// that source.
func (c *Config) problems(origin func(setting) source) []Problem {
	var found []Problem
	for _, s := range table {
		err := oneOf(s.values)(s.field(c))
		if err == nil && s.check != nil {
			err = s.check(s.field(c))
		}
		if err != nil {
			found = append(found, problem(s, origin(s), err))
		}
	}
	if c.Cluster.Secret != "" && c.Cluster.SecretFile != "" {
		found = append(found, Problem{
			Key:    "cluster.secret",
			Detail: "give either the secret or cluster.secret_file, not both",
		})
	}
	found = append(found, c.twice(origin)...)
	found = append(found, c.signIn(origin)...)
	found = append(found, c.paid()...)
	if (c.API.TLSCert == "") != (c.API.TLSKey == "") {
		found = append(found, Problem{
			Key:    "api.tls_cert",
			Detail: "give both the certificate and api.tls_key, or neither",
		})
	}
	return found
}

// prefixes is a check that accepts a list of IP addresses and of prefixes such as 10.0.0.0/8.
func prefixes(field any) error {
	if err := entries(field); err != nil {
		return err
	}
	for _, text := range *field.(*[]string) {
		if _, err := parsePrefix(text); err != nil {
			return fmt.Errorf("%q is not an address or a prefix such as 10.0.0.0/8", text)
		}
	}
	return nil
}

// parsePrefix parses an IP prefix. It also accepts a single address, for which it returns a
// prefix of full length. It converts an IPv4-mapped IPv6 prefix to IPv4.
func parsePrefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if before := 128 - 32; p.Addr().Is4In6() && p.Bits() >= before {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-before)
	}
	return p.Masked(), err
}

// origins is a check that accepts a list of web origins in the form in which browsers send them,
// such as https://app.example.org. An entry can also be "*".
func origins(field any) error {
	if err := entries(field); err != nil {
		return err
	}
	for _, text := range *field.(*[]string) {
		u, err := url.Parse(text)
		if text != "*" && (err != nil || u.Scheme == "" || u.Host == "" || text != u.Scheme+"://"+u.Host || strings.ToLower(text) != text) {
			return fmt.Errorf("%q is not * or an origin such as https://app.example.org", text)
		}
		if u.Scheme == "https" && u.Port() == "443" || u.Scheme == "http" && u.Port() == "80" {
			return fmt.Errorf("%q names the default port, which browsers omit, so it would never match: write %s", text, strings.TrimSuffix(text, ":"+u.Port()))
		}
	}
	return nil
}

// between returns a check that accepts a value from low to high, including both.
func between[T cmp.Ordered](low, high T) check {
	return func(field any) error {
		value, ok := field.(*T)
		if !ok {
			return fmt.Errorf("%T has no range", field)
		}
		if *value < low || *value > high {
			return fmt.Errorf("%s is not between %s and %s", plain(*value), plain(low), plain(high))
		}
		return nil
	}
}

// autoOr returns a check that accepts an AutoDuration of "auto", and one from low to high,
// including both.
func autoOr(low, high time.Duration) check {
	return func(field any) error {
		value, ok := field.(*AutoDuration)
		if !ok {
			return fmt.Errorf("%T is never auto", field)
		}
		if d := time.Duration(*value); d != 0 && (d < low || d > high) {
			return fmt.Errorf("%s is neither auto nor between %s and %s", plain(d), plain(low), plain(high))
		}
		return nil
	}
}

// plain formats a value for an error message.
func plain(value any) string {
	if d, ok := value.(time.Duration); ok {
		return FormatDuration(d)
	}
	return fmt.Sprint(value)
}

// oneOf returns a check that accepts a string that is one of words. If words is nil, the check
// accepts every value.
func oneOf(words []string) check {
	return func(field any) error {
		if words == nil {
			return nil
		}
		value, ok := field.(*string)
		if !ok || !slices.Contains(words, *value) {
			return fmt.Errorf("%q is not one of %s", deref(value), strings.Join(words, ", "))
		}
		return nil
	}
}

// allOf returns a check that accepts a value if all of checks accept it. Its error is that of the
// first check that fails.
func allOf(checks ...check) check {
	return func(field any) error {
		for _, c := range checks {
			if err := c(field); err != nil {
				return err
			}
		}
		return nil
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// entries is a check that accepts a list of at most maxEntries strings. Each string is not empty
// and contains no white space.
func entries(field any) error {
	list, ok := field.(*[]string)
	if !ok {
		return fmt.Errorf("%T is not a list", field)
	}
	if len(*list) > maxEntries {
		return fmt.Errorf("%d values, at most %d are allowed", len(*list), maxEntries)
	}
	for _, entry := range *list {
		if strings.TrimSpace(entry) == "" || strings.ContainsFunc(entry, unicode.IsSpace) {
			return fmt.Errorf("%q is empty or holds a space", entry)
		}
	}
	return nil
}

// notEmpty is a check that rejects an empty list.
func notEmpty(field any) error {
	if list, ok := field.(*[]string); ok && len(*list) == 0 {
		return errors.New("at least one value is needed")
	}
	return nil
}

// multiaddrs is a check that accepts a list of multiaddrs. It finds a malformed multiaddr before
// the node opens a listener or writes a file.
func multiaddrs(field any) error { return eachAddr(field, nil) }

// listenAddrs is a check that accepts a list of multiaddrs with an IP address and a TCP or UDP
// port, and without a peer id.
func listenAddrs(field any) error {
	return eachAddr(field, func(a multiaddr.Multiaddr) error {
		p := a.Protocols()
		ip := slices.ContainsFunc(p, func(p multiaddr.Protocol) bool { return p.Code == multiaddr.P_IP4 || p.Code == multiaddr.P_IP6 })
		port := slices.ContainsFunc(p, func(p multiaddr.Protocol) bool { return p.Code == multiaddr.P_TCP || p.Code == multiaddr.P_UDP })
		if !ip || !port || hasID(a) {
			return fmt.Errorf("%q is not an address to listen on such as /ip4/0.0.0.0/tcp/4001", a)
		}
		return nil
	})
}

// clusterAddrs is a check that accepts a list of multiaddrs that a member can dial: an IP address or
// a DNS name with a TCP port, and without a peer id.
func clusterAddrs(field any) error {
	return eachAddr(field, func(a multiaddr.Multiaddr) error {
		if p := a.Protocols(); len(p) != 2 || p[1].Code != multiaddr.P_TCP || !slices.Contains(hostProtocols, p[0].Code) {
			return fmt.Errorf("%q is not the address of a cluster port, such as /dns4/node1.example.org/tcp/9096", a)
		}
		return nil
	})
}

// hostProtocols are the multiaddr protocols that name a machine.
var hostProtocols = []int{multiaddr.P_IP4, multiaddr.P_IP6, multiaddr.P_DNS, multiaddr.P_DNS4, multiaddr.P_DNS6}

// peerAddrs is a check that accepts a list of multiaddrs that end with the peer id of a node.
func peerAddrs(field any) error {
	return eachAddr(field, func(a multiaddr.Multiaddr) error {
		if !hasID(a) || len(a) < 2 {
			return fmt.Errorf("%q is not the address of a node, such as /ip4/.../tcp/.../p2p/ID", a)
		}
		return nil
	})
}

// joinPlaces is a check of the values of cluster.join. A value that begins with a slash must be
// the multiaddr of a node with its peer id. Every other value counts as a join ticket; only the
// member that issued a ticket can verify it.
func joinPlaces(field any) error {
	if slices.Contains(*field.(*[]string), "") {
		return &openError{errNoPlace}
	}
	if err := entries(field); err != nil {
		return err
	}
	var addrs []string
	for _, where := range *field.(*[]string) {
		if strings.HasPrefix(where, "/") {
			addrs = append(addrs, where)
		}
	}
	if err := peerAddrs(&addrs); err != nil {
		return &openError{err}
	}
	return nil
}

// errNoPlace is the error for an empty value of cluster.join. A shell produces an empty value if
// the command that should print the ticket failed.
var errNoPlace = errors.New("it is empty; if it comes from $(holdfast token --data DIR), that command printed no ticket: does a node run on DIR?")

// openError marks an error about a secret setting as safe to print, because the text of the error
// does not contain the secret. See problem.
type openError struct{ error }

// hasID reports whether a multiaddr ends with a peer id, /p2p/ID.
func hasID(a multiaddr.Multiaddr) bool {
	return len(a) > 0 && a[len(a)-1].Protocol().Code == multiaddr.P_P2P
}

func eachAddr(field any, judge func(multiaddr.Multiaddr) error) error {
	if err := entries(field); err != nil {
		return err
	}
	for _, text := range *field.(*[]string) {
		a, err := multiaddr.NewMultiaddr(text)
		if err != nil {
			return fmt.Errorf("%q is not a multiaddr such as /ip4/0.0.0.0/tcp/4001: %w", text, err)
		}
		if judge == nil {
			continue
		}
		if err := judge(a); err != nil {
			return err
		}
	}
	return nil
}

// hostPort is a check that accepts an empty string, and host:port with a numeric port.
func hostPort(field any) error {
	value, ok := field.(*string)
	if !ok {
		return fmt.Errorf("%T is not an address", field)
	}
	if *value == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(*value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%q is not host:port such as 127.0.0.1:9097", *value)
	}
	return nil
}

// shortText is a check that accepts a string of printable characters that is short enough to be
// shown as a name on one line. It also accepts an empty string.
func shortText(field any) error {
	value := deref(field.(*string))
	if utf8.RuneCountInString(value) > maxNameRunes || len(value) > maxNameBytes ||
		strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%q is not a name of at most %d printable characters and %d bytes", value, maxNameRunes, maxNameBytes)
	}
	return nil
}

// regionName is a check that accepts the name of an S3 region: lower case letters, digits and
// hyphens. The name is part of every AWS signature.
func regionName(field any) error {
	value := deref(field.(*string))
	plain := func(r rune) bool { return r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' }
	if value == "" || len(value) > maxRegion || strings.ContainsFunc(value, func(r rune) bool { return !plain(r) }) {
		return fmt.Errorf("%q is not a region such as us-east-1", value)
	}
	return nil
}

// hostName is a check that accepts an empty string, and a host name in lower case without a port.
func hostName(field any) error {
	value := deref(field.(*string))
	if value == "" {
		return nil
	}
	plain := func(r rune) bool { return r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' }
	_, err := netip.ParseAddr(value)
	if err == nil || len(value) > maxHost || strings.ContainsFunc(value, func(r rune) bool { return !plain(r) }) ||
		strings.Contains("."+value+".", "..") {
		return fmt.Errorf("%q is not a host name such as s3.example.org", value)
	}
	return nil
}

// statuses is a check that accepts "all", and names of pin statuses that are separated by commas.
func statuses(field any) error {
	value := deref(field.(*string))
	if value == statusAll {
		return nil
	}
	for name := range strings.SplitSeq(value, ",") {
		if !slices.Contains(pinStatuses, name) {
			return fmt.Errorf("%q is not %s or some of %s", value, statusAll, strings.Join(pinStatuses, ","))
		}
	}
	return nil
}
