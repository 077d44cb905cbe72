package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Stream is the body of an answer whose size is not known before. It sets the header before the first
// byte, so an error before that can still be the answer, and it fails if the client takes no bytes for
// StallTimeout.
type Stream struct {
	w      http.ResponseWriter
	body   io.Writer
	head   bool // the method is HEAD: the stream ends after the header
	header func(h http.Header)
	begun  bool
}

// NewStream returns the body of the answer w to r. header sets the header of the answer.
func NewStream(w http.ResponseWriter, r *http.Request, header func(h http.Header)) *Stream {
	return &Stream{w: w, body: NewSteady(w, StallTimeout), head: r.Method == http.MethodHead, header: header}
}

// errHead ends what writes to the answer to HEAD.
var errHead = errors.New("the answer to HEAD has no body")

// Write implements io.Writer.
func (s *Stream) Write(b []byte) (int, error) {
	if !s.begun {
		s.begun = true
		s.header(s.w.Header())
		s.w.WriteHeader(http.StatusOK)
	}
	if s.head {
		return 0, errHead
	}
	return s.body.Write(b)
}

// Ended returns the error of the request, where err is that of what has written the stream. If that was
// after the first byte, Wrap cuts the connection, so that no client takes a part for the whole.
func (s *Stream) Ended(err error) error {
	switch {
	case err == nil, s.head && s.begun:
		return nil
	case s.begun:
		return fmt.Errorf("send content: %w", err)
	}
	return err
}
