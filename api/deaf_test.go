package api

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/nettest"
)

// deaf is a connection from which nothing is read once stop is closed.
type deaf struct {
	net.Conn
	stop, closed chan struct{}
}

func (d *deaf) Read(p []byte) (int, error) {
	select {
	case <-d.stop:
		<-d.closed
		return 0, net.ErrClosed
	default:
		return d.Conn.Read(p)
	}
}

// A client over HTTP/2 that stops reading does not keep a handler for an hour. The frame that ends its stream
// cannot be written either, so the server cuts the connection.
func TestWhoTakesNothingOverHTTP2IsCut(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	synctest.Test(t, func(t *testing.T) {
		pool := writeCertificate(t, cert, key, 1)
		logger := slog.New(slog.DiscardHandler)
		certificate, err := openCertificate(cert, key, logger)
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{logger: logger, flight: newFlight(), draining: make(chan struct{})}
		listener, ended := nettest.NewPipes(), make(chan error, 1)
		svc := s.add(s3Service, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for control := http.NewResponseController(w); ; {
				_ = control.SetWriteDeadline(time.Now().Add(time.Minute))
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					ended <- err
					return
				}
			}
		}))
		svc.server.TLSConfig = certificate.tlsConfig()
		svc.server.TLSConfig.SessionTicketsDisabled = true // a pipe holds nothing, and they come before the client reads
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()

		near, far := net.Pipe()
		client := &deaf{near, make(chan struct{}), make(chan struct{})}
		if err := listener.Hand(t.Context(), far); err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{
			ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool},
			DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil },
		}
		resp, err := (&http.Client{Transport: transport}).Get("https://127.0.0.1/")
		if err != nil || resp.ProtoMajor != 2 {
			t.Fatal(resp, err)
		}
		close(client.stop)
		select {
		case <-ended:
		case <-time.After(time.Hour):
			t.Error("the answer is still being written after an hour")
		}
		close(client.closed)
		_ = near.Close()
		_ = resp.Body.Close()
		transport.CloseIdleConnections()
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}
