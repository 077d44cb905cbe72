package api

import (
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// Pages link to the gateway of their node at its first host name: by the port of the listener, or, if that is on
// loopback, through a proxy with TLS.
func TestPagesLinkToTheGatewayOfTheirNode(t *testing.T) {
	for _, tc := range []struct {
		addr  string
		hosts []string
		tls   bool
		want  string
	}{
		{"", []string{"dweb.example.org"}, false, ""},
		{"0.0.0.0:8080", nil, false, ""},
		{"0.0.0.0:8080", []string{"dweb.example.org", "other.example.org"}, false, "http://dweb.example.org:8080"},
		{"[::]:8080", []string{"dweb.example.org"}, true, "https://dweb.example.org:8080"},
		{"10.0.0.1:443", []string{"dweb.example.org"}, true, "https://dweb.example.org"},
		{"10.0.0.1:80", []string{"dweb.example.org"}, false, "http://dweb.example.org"},
		{"127.0.0.1:8080", []string{"dweb.example.org"}, false, "https://dweb.example.org"},
		{"127.0.0.1:8080", []string{"localhost"}, false, "http://localhost:8080"},
		{"[::1]:8080", []string{"dweb.localhost"}, true, "https://dweb.localhost:8080"},
	} {
		if got := gatewayOrigin(tc.addr, tc.hosts, tc.tls); got != tc.want {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}

// The gateway tells the addresses of listeners that its clients can reach, with the host name and the scheme that they have
// used, and the URL of the console if there is one.
func TestTheGatewayTellsWhatItsClientsReach(t *testing.T) {
	const local, open = "127.0.0.1", "0.0.0.0"
	for _, tc := range []struct {
		s3, pinning, console, url string
		want                      web.Addresses
	}{
		{local, local + ":1", local + ":2", "", web.Addresses{Pinning: "https://node:1", Web: "https://node:2/api/v1"}},
		{open, open + ":1", open + ":2", "", web.Addresses{Pinning: "https://node:1", Web: "https://node:2/api/v1"}},
		{open, local + ":1", "[::1]:2", "", web.Addresses{}},
		{open, "10.0.0.1:1", "", "", web.Addresses{Pinning: "https://node:1"}},
		{open, "", local + ":2", "https://console.example.org/", web.Addresses{Web: "https://console.example.org/api/v1"}},
	} {
		s := new(Server)
		s.addrs.S3, s.addrs.Pinning, s.addrs.Console = tc.s3+":9", tc.pinning, tc.console
		if got := s.addressesOf(Options{ConsoleURL: tc.url})("node:9", "https"); got != tc.want {
			t.Errorf("%+v: %+v", tc, got)
		}
	}
}
