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

// check returns an error for a bad value. field is a pointer into Config.
type check func(field any) error

// statusAll means every status that a pin can have.
const statusAll = "all"

// pinStatuses are the states of a pin in the Pinning Service API 1.0.0.
var pinStatuses = []string{"queued", "pinning", "pinned", "failed"}

// Validate returns an *Error with all problems of c, or nil. Load calls it.
func (c Config) Validate() error {
	return asError(c.problems(func(setting) source { return source{} }))
}

// problems checks each setting, and settings that depend on each other. origin returns the
// source of the value of a setting.
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

// prefixes accepts a list of IP addresses and prefixes.
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

// parsePrefix parses a prefix, or an address as a prefix of full length. It returns an
// IPv4-mapped IPv6 prefix as IPv4.
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

// origins accepts a list of origins as browsers send them, and *.
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

// between accepts a value from low to high.
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

// autoOr accepts auto, and a time from low to high.
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

// plain writes a value for people.
func plain(value any) string {
	if d, ok := value.(time.Duration); ok {
		return FormatDuration(d)
	}
	return fmt.Sprint(value)
}

// oneOf accepts one of words.
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

// allOf accepts a value if all checks accept it.
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

// entries accepts a list of texts that are not empty.
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

// notEmpty accepts a list that has a value.
func notEmpty(field any) error {
	if list, ok := field.(*[]string); ok && len(*list) == 0 {
		return errors.New("at least one value is needed")
	}
	return nil
}

// multiaddrs accepts a list of multiaddrs. A value that is no multiaddr is so reported before
// anything is started or written.
func multiaddrs(field any) error { return eachAddr(field, nil) }

// listenAddrs accepts multiaddrs of addresses to listen on.
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

// peerAddrs accepts multiaddrs of nodes, with their id.
func peerAddrs(field any) error {
	return eachAddr(field, func(a multiaddr.Multiaddr) error {
		if !hasID(a) || len(a) < 2 {
			return fmt.Errorf("%q is not the address of a node, such as /ip4/.../tcp/.../p2p/ID", a)
		}
		return nil
	})
}

// joinPlaces accepts tickets, which the member that made them checks, and multiaddrs of
// nodes.
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

// errNoPlace is the error for an empty ticket. The ticket is empty if a command that should
// print it failed.
var errNoPlace = errors.New("it is empty; if it comes from $(holdfast token --data DIR), that command printed no ticket: does a node run on DIR?")

// openError is an error about the value of a secret setting that does not show it.
type openError struct{ error }

// hasID returns whether a multiaddr ends with the id of a node.
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

// hostPort accepts host:port with a numeric port, and the empty text.
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

// shortText accepts a name that people can read on one line.
func shortText(field any) error {
	value := deref(field.(*string))
	if utf8.RuneCountInString(value) > maxNameRunes || len(value) > maxNameBytes ||
		strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%q is not a name of at most %d printable characters and %d bytes", value, maxNameRunes, maxNameBytes)
	}
	return nil
}

// regionName accepts the name of a region as signatures carry it.
func regionName(field any) error {
	value := deref(field.(*string))
	plain := func(r rune) bool { return r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' }
	if value == "" || len(value) > maxRegion || strings.ContainsFunc(value, func(r rune) bool { return !plain(r) }) {
		return fmt.Errorf("%q is not a region such as us-east-1", value)
	}
	return nil
}

// hostName accepts a host name in lower case without a port, and the empty text.
func hostName(field any) error {
	value := deref(field.(*string))
	if value == "" {
		return nil
	}
	plain := func(r rune) bool { return r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' }
	_, err := netip.ParseAddr(value)
	if err == nil || len(value) > maxHost || strings.ContainsFunc(value, func(r rune) bool { return !plain(r) }) ||
		strings.HasPrefix(value, ".") || strings.HasSuffix(value, ".") {
		return fmt.Errorf("%q is not a host name such as s3.example.org", value)
	}
	return nil
}

// statuses accepts "all" or names of pin states joined by commas.
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
