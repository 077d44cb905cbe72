package main

import (
	"net/netip"
	"testing"
)

// The start message and `status` name an address that a browser can open, where a node listens on all addresses.
func TestAnUnspecifiedAddressIsReplaced(t *testing.T) {
	machine := func(netip.Addr) netip.Addr { return netip.MustParseAddr("198.51.100.7") }
	for in, want := range map[string]string{
		"0.0.0.0:9001": "198.51.100.7:9001", "[::]:9001": "198.51.100.7:9001", "127.0.0.1:1": "127.0.0.1:1", "[::1]:1": "[::1]:1",
		"console.example.org:443": "console.example.org:443", "": "", "9001": "9001",
	} {
		if got := specified(in, machine); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
	for _, in := range []string{"0.0.0.0", "::"} {
		unspecified := netip.MustParseAddr(in)
		if got := machineAddr(unspecified); !got.IsValid() || got.IsUnspecified() || unspecified.Is4() && !got.Is4() {
			t.Errorf("for %s the address of this machine is %s", in, got)
		}
		if got := loopback(unspecified); !got.IsLoopback() || got.Is4() != unspecified.Is4() {
			t.Errorf("for %s the loopback address is %s", in, got)
		}
	}
}
