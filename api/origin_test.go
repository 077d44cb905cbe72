package api

import "testing"

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
