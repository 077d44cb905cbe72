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

// certificateEvery is the shortest time between two checks whether the certificate file has
// changed.
const certificateEvery = 5 * time.Second

// certificate is a TLS certificate with its key, loaded from files that the operator can replace
// while the node runs.
type certificate struct {
	cert, key string // paths
	logger    *slog.Logger

	// mu guards the fields below.
	mu      sync.Mutex
	loaded  *tls.Certificate
	changed time.Time // modification time of the loaded certificate file
	checked time.Time // when the modification time was last compared
}

// openCertificate reads a certificate and its key from files in PEM form.
func openCertificate(cert, key string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, logger: logger}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("api.tls_cert, api.tls_key: %w", err)
	}
	return c, nil
}

// load reads the certificate and the key if the certificate file has changed since the last load.
// The caller holds mu, or no other goroutine has c yet.
func (c *certificate) load() error {
	info, err := os.Stat(c.cert)
	if err != nil {
		return err
	}
	c.checked = time.Now()
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

// get implements tls.Config.GetCertificate. It reloads the files if the certificate file has
// changed, which it checks at most once per certificateEvery. If a reload fails, it logs the
// error and returns the old certificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) >= certificateEvery {
		if err := c.load(); err != nil {
			c.checked = time.Now()
			c.logger.Error("cannot reload the TLS certificate: serving the old one", "err", err)
		}
	}
	return c.loaded, nil
}

// tlsConfig returns the TLS configuration of every listener that clients use.
func (c *certificate) tlsConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}

// openTLS reads the certificate that o.TLSCert and o.TLSKey name. It returns nil and no error if
// both are empty.
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
