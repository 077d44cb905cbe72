package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/nettest"
)

// writeCertificate writes a new self-signed pair for 127.0.0.1.
func writeCertificate(t *testing.T, cert, key string, serial int64) *x509.CertPool {
	t.Helper()
	certPEM, keyPEM, parsed := nettest.Certificate(t, serial)
	if err := errors.Join(os.WriteFile(cert, certPEM, 0o600), os.WriteFile(key, keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return pool
}

// With a certificate, the node serves HTTP/2 over TLS with Strict-Transport-Security, and answers plain HTTP
// with 400.
func TestClientsAreServedOverTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pool := writeCertificate(t, cert, key, 1)
	// Nobody gets as far as the use cases without a token.
	server, err := Listen(Options{
		Pinning: "127.0.0.1:0", DefaultStatus: []string{"pinned"}, Logger: slog.New(slog.DiscardHandler), TLSCert: cert, TLSKey: key,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("https://" + server.Addrs().Pinning + "/pins")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 401 || resp.ProtoMajor != 2 || !strings.HasPrefix(resp.Header.Get("Strict-Transport-Security"), "max-age=") {
		t.Errorf("%s %d, %v", resp.Proto, resp.StatusCode, resp.Header)
	}
	plain, err := http.Get("http://" + server.Addrs().Pinning + "/pins")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	if plain.StatusCode != 400 {
		t.Errorf("plain HTTP: %d", plain.StatusCode)
	}
}

// A renewed certificate is served without a restart, a damaged one is logged while the old one stays, and at the
// start a damaged, missing or keyless one is an error.
func TestARenewedCertificateIsTakenAndABadOneIsNot(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeCertificate(t, cert, key, 1)
	var log bytes.Buffer
	c, err := openCertificate(cert, key, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	serial := func() int64 {
		t.Helper()
		got, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return got.Leaf.SerialNumber.Int64()
	}
	at := time.Now()
	renew := func(write func()) {
		t.Helper()
		write()
		at = at.Add(time.Second) // two writes may be within one tick of the file system
		if err := os.Chtimes(cert, at, at); err != nil {
			t.Fatal(err)
		}
		c.checked = time.Time{}
	}
	renew(func() { writeCertificate(t, cert, key, 2) })
	if got := serial(); got != 2 {
		t.Errorf("renewed: serial %d", got)
	}
	renew(func() {
		if err := os.WriteFile(cert, []byte("half of a fi"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if got := serial(); got != 2 || !strings.Contains(log.String(), "cannot reload the TLS certificate") {
		t.Errorf("damaged: serial %d, %s", got, &log)
	}
	for _, bad := range [][2]string{{cert, key}, {filepath.Join(dir, "none"), key}} {
		if _, err := openCertificate(bad[0], bad[1], slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "api.tls_cert") {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := openTLS(Options{TLSCert: cert}); err == nil {
		t.Error("a certificate without a key")
	}
	// Before there are use cases: a node that could not serve enters no cluster.
	if _, err := Bind(Options{Pinning: "127.0.0.1:0", TLSCert: cert, TLSKey: key, Logger: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "api.tls_cert") {
		t.Errorf("listening with a damaged certificate: %v", err)
	}
}

// All addresses except those of loopback count as reachable from other machines.
func TestWhichAddressesAreBeyondThisMachine(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:1": false, "[::1]:1": false, "0.0.0.0:1": true, "[::]:1": true, "192.0.2.1:1": true} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := !loopback(a); got != want {
			t.Errorf("%s is beyond this machine: %v", addr, got)
		}
	}
}
