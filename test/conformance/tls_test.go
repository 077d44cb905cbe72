//go:build conformance

package conformance

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/nettest"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// certificateWithin bounds how long a node may take to look at the files of its
// certificate again: it does so every five seconds.
const certificateWithin = 2 * time.Minute

// pair is the certificate of a node for 127.0.0.1 and its key, files that the
// test replaces.
type pair struct {
	cert, key string // paths
	pool      *x509.CertPool
}

// newPair returns a pair of files in a folder.
func newPair(t *testing.T, dir string, serial int64) *pair {
	t.Helper()
	p := &pair{cert: filepath.Join(dir, "api.crt"), key: filepath.Join(dir, "api.key"), pool: x509.NewCertPool()}
	p.renew(t, serial)
	return p
}

// renew puts another pair in the place of the files, each at once, the
// certificate last: a node that looks in between finds the old one unchanged.
func (p *pair) renew(t *testing.T, serial int64) {
	t.Helper()
	cert, key, parsed := nettest.Certificate(t, serial)
	p.write(t, p.key, key)
	p.write(t, p.cert, cert)
	p.pool.AddCert(parsed)
}

func (p *pair) write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// served returns the serial number of the certificate that a new connection gets.
func (p *pair) served(addr string) (int64, error) {
	conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: p.pool})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

// TestTheAPIOverTLS promises that a process that has a certificate serves the API over HTTPS alone, and loads a new
// certificate while it runs (row 86).
func TestTheAPIOverTLS(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Nodes: 1})
	n := c.Nodes[0]
	token := n.UserKey("tls@example.org").Token
	p := serveTLS(t, n)
	plain := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	addr, pid := strings.TrimPrefix(n.URL(), "http://"), n.Pid()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.pool}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	secure := &harness.PinsClient{Base: "https://" + addr, Token: token, HTTP: &http.Client{Timeout: 90 * time.Second, Transport: transport}}

	pin, err := secure.Post(t.Context(), harness.Pin{CID: nowhere().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("every answer tells to come by HTTPS alone", func(t *testing.T) {
		for path, want := range map[string]int{"/pins/" + pin.RequestID: 200, "/pins": 200, "/pins/x": 404, "/nothing": 404, "/readyz": 200} {
			r, err := secure.Do(t.Context(), http.MethodGet, path, nil, nil)
			if hsts := r.Header.Get("Strict-Transport-Security"); err != nil || r.Status != want || hsts != "max-age=31536000" {
				t.Errorf("%s: %d %s, Strict-Transport-Security %q, %v", path, r.Status, r.Body, hsts, err)
			}
		}
	})
	t.Run("plain HTTP gets no API", func(t *testing.T) {
		open := &harness.PinsClient{Base: n.URL(), Token: token, HTTP: plain}
		for _, path := range []string{"/pins/" + pin.RequestID, "/pins", "/readyz", "/openapi.json"} {
			r, err := open.Do(t.Context(), http.MethodGet, path, nil, nil)
			if err != nil || r.Status != http.StatusBadRequest || json.Valid(r.Body) || strings.Contains(string(r.Body), pin.RequestID) {
				t.Errorf("%s: %d %s, %v", path, r.Status, r.Body, err)
			}
		}
	})
	t.Run("old versions of TLS get nothing", func(t *testing.T) {
		for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
			conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: p.pool, MinVersion: version, MaxVersion: version})
			if (err == nil) != want {
				t.Errorf("%s: %v", tls.VersionName(version), err)
			}
			if conn != nil {
				conn.Close()
			}
		}
	})
	t.Run("a certificate that is replaced is served without a restart", func(t *testing.T) {
		p.renew(t, 2)
		harness.Eventually(t, certificateWithin, "the new certificate is served", func() (bool, error) {
			serial, err := p.served(addr)
			return serial == 2, errors.Join(err, fmt.Errorf("serial number %d", serial))
		})
	})
	t.Run("a broken one is not, and is told", func(t *testing.T) {
		p.write(t, p.cert, []byte("-----BEGIN CERTIFICATE-----\nhalf of a fi"))
		harness.Eventually(t, certificateWithin, "the log tells of the broken certificate", func() (bool, error) {
			if serial, err := p.served(addr); serial != 2 || err != nil {
				t.Fatalf("serial number %d, %v", serial, err)
			}
			return strings.Contains(n.Log(), "cannot reload the TLS certificate: serving the old one"), nil
		})
		if _, err := secure.Get(t.Context(), pin.RequestID); err != nil {
			t.Error(err)
		}
	})
	if !n.Running() || n.Pid() != pid {
		t.Error("the process was started again")
	}
}

// TestACertificateThatCannotBeUsedEndsTheStart promises that a node with a certificate or key that it cannot use does
// not start, names the setting, and begins nothing in its folder.
func TestACertificateThatCannotBeUsedEndsTheStart(t *testing.T) {
	good := t.TempDir()
	p, q := newPair(t, good, 1), newPair(t, t.TempDir(), 2)
	for _, tc := range []struct {
		name      string
		cert, key string
	}{
		{"a certificate without its key", p.cert, ""},
		{"a key without its certificate", "", p.key},
		{"no such file", filepath.Join(good, "none.pem"), p.key},
		{"the key of another certificate", p.cert, q.key},
		{"a certificate for a key", p.cert, p.cert},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "node")
			env := []string{"HOLDFAST_API_TLS_CERT=" + tc.cert, "HOLDFAST_API_TLS_KEY=" + tc.key}
			r := harness.Run(t, env, "", "run", "--data", dir, "--routing", "off", "--listen", "/ip4/127.0.0.1/tcp/0", "--cluster-listen", "/ip4/127.0.0.1/tcp/0",
				"--pinning-listen", "127.0.0.1:0", "--s3-listen", "127.0.0.1:0", "--console-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
			if r.Code != 1 || !strings.Contains(r.Stderr, "api.tls_cert") || strings.Contains(r.Stderr, "PRIVATE") {
				t.Errorf("exit code %d, %s", r.Code, r.Stderr)
			}
			entries, err := os.ReadDir(dir)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != "config.toml" }) {
				t.Errorf("the folder has %v", entries)
			}
		})
	}
}
