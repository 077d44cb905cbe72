package api

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// certificateEvery is the shortest time between two checks for a new certificate.
const certificateEvery = 5 * time.Second

// certificate is a certificate with its key, in files that can be renewed while the node runs.
type certificate struct {
	cert, key string // paths
	logger    *slog.Logger

	// mu guards the fields below.
	mu      sync.Mutex
	loaded  *tls.Certificate
	changed time.Time // of the certificate's file
	looked  time.Time
}

// openCertificate reads a certificate and its key from files in PEM form.
func openCertificate(cert, key string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, logger: logger}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("api.tls_cert, api.tls_key: %w", err)
	}
	return c, nil
}

// load reads the files. The caller holds mu, or is the only one that has c.
func (c *certificate) load() error {
	info, err := os.Stat(c.cert)
	if err != nil {
		return err
	}
	c.looked = time.Now()
	if c.loaded != nil && info.ModTime().Equal(c.changed) {
		return nil
	}
	loaded, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.loaded, c.changed = &loaded, info.ModTime()
	return nil
}

// get returns the certificate. It reloads the files after a change, and keeps the old
// certificate if that fails.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) >= certificateEvery {
		if err := c.load(); err != nil {
			c.looked = time.Now()
			c.logger.Error("cannot reload the TLS certificate: serving the old one", "err", err)
		}
	}
	return c.loaded, nil
}

// tlsConfig returns the TLS configuration of all listeners for clients.
func (c *certificate) tlsConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}

// openTLS reads the certificate of the options. It returns nil if they name none.
func openTLS(o Options) (*certificate, error) {
	if o.TLSCert == "" && o.TLSKey == "" {
		return nil, nil
	}
	if o.TLSCert == "" || o.TLSKey == "" {
		return nil, errors.New("api.tls_cert and api.tls_key: one is of no use without the other")
	}
	return openCertificate(o.TLSCert, o.TLSKey, o.Logger)
}

// loopback reports whether only this machine can reach an address.
func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}
