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

// certificateEvery is how often a certificate's files are looked at for a new one.
const certificateEvery = 5 * time.Second

// certificate is a pair of files that may be renewed while the node runs.
type certificate struct {
	cert, key string // paths
	logger    *slog.Logger

	// mu guards what follows.
	mu      sync.Mutex
	loaded  *tls.Certificate
	changed time.Time // of the certificate's file
	looked  time.Time
}

// openCertificate reads a certificate and its key, in PEM form.
func openCertificate(cert, key string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, logger: logger}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("api.tls_cert, api.tls_key: %w", err)
	}
	return c, nil
}

// load needs mu, unless nobody else has c yet.
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

// get returns the certificate, read anew when its file has changed. While that
// fails the old one stays.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) >= certificateEvery {
		if err := c.load(); err != nil {
			c.looked = time.Now()
			c.logger.Error("the TLS certificate cannot be read anew", "err", err)
		}
	}
	return c.loaded, nil
}

// tlsConfig is that of every listener for clients.
func (c *certificate) tlsConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}

// openTLS reads the certificate of the options; nil without one.
func openTLS(o Options) (*certificate, error) {
	if o.TLSCert == "" && o.TLSKey == "" {
		return nil, nil
	}
	if o.TLSCert == "" || o.TLSKey == "" {
		return nil, errors.New("api.tls_cert and api.tls_key: one is of no use without the other")
	}
	return openCertificate(o.TLSCert, o.TLSKey, o.Logger)
}

// loopback tells whether only this machine reaches an address.
func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}
