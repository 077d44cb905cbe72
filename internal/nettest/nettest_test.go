package nettest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
)

// The accepting end of a pipe reads what the dialling end writes, and neither waits longer than its context or for a
// closed listener.
func TestAPipeJoinsWhoDialsAndWhoAccepts(t *testing.T) {
	p := NewPipes()
	go func() {
		conn, err := p.Dial(t.Context())
		if err == nil {
			_, err = conn.Write([]byte("x"))
		}
		if err != nil {
			t.Error(err)
		}
	}()
	conn, err := p.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody accepts, and the context has ended: %v", err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	_, derr := p.Dial(t.Context())
	if _, err := p.Accept(); !errors.Is(err, net.ErrClosed) || !errors.Is(derr, net.ErrClosed) {
		t.Errorf("closed: %v, %v", err, derr)
	}
}

// Certificate returns a pair that TLS accepts, with the given serial number and the address 127.0.0.1.
func TestACertificateIsThatOfItsKey(t *testing.T) {
	cert, key, parsed := Certificate(t, 7)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if parsed.SerialNumber.Int64() != 7 || string(pair.Certificate[0]) != string(parsed.Raw) || parsed.VerifyHostname("127.0.0.1") != nil {
		t.Errorf("another certificate: %v", parsed)
	}
}
