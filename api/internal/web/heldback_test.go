package web

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// one is a listener for one connection.
type one struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (o *one) Accept() (net.Conn, error) {
	select {
	case c := <-o.conn:
		return c, nil
	case <-o.closed:
		return nil, net.ErrClosed
	}
}

func (o *one) Close() error   { close(o.closed); return nil }
func (o *one) Addr() net.Addr { return &net.TCPAddr{} }

// The server closes the connection of a client that holds its body back, at most heldBackFor after the answer.
func TestABodyThatIsHeldBackKeepsNoConnection(t *testing.T) {
	for name, h := range map[string]Handler{
		"refused": func(http.ResponseWriter, *http.Request) error { return BadRequest("no") },
		"served":  func(w http.ResponseWriter, _ *http.Request) error { return Empty(w, http.StatusOK) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handler, _ := wrapped(h)
				near, far := net.Pipe()
				l := &one{make(chan net.Conn, 1), make(chan struct{})}
				l.conn <- far
				s := &http.Server{Handler: handler, ReadTimeout: time.Hour}
				served := make(chan error, 1)
				go func() { served <- s.Serve(l) }()
				if _, err := io.WriteString(near, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				in := bufio.NewReader(near)
				resp, err := http.ReadResponse(in, nil)
				if err != nil || !resp.Close {
					t.Fatalf("%+v, %v; want an answer that ends the connection", resp, err)
				}
				_, err = io.Copy(io.Discard, resp.Body)
				if err = errors.Join(err, resp.Body.Close()); err != nil {
					t.Fatal(err)
				}
				answered := time.Now()
				if _, err := in.ReadByte(); err != io.EOF { //nolint:errorlint // what a pipe returns
					t.Errorf("read %v behind the answer", err)
				}
				if took := time.Since(answered); took > heldBackFor {
					t.Errorf("the connection was closed %v after the answer", took)
				}
				_ = near.Close()
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				<-served
			})
		})
	}
}
