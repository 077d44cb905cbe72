package admin

import (
	"context"
	"net/http"
	"net/url"
)

// FailureTrailer is the trailer of an answer whose length is not known before: a folder or a CAR. It
// says why the answer ends early, with percent signs as in a path. It is absent after a complete answer.
const FailureTrailer = "X-Holdfast-Error"

// stream writes the body of an answer, and the header before the first byte.
type stream struct {
	w             http.ResponseWriter
	header        func(http.Header) // sets the fields of the header, but for the trailer
	begun, failed bool              // failed means that the client got not all bytes
}

// Write implements io.Writer.
func (s *stream) Write(b []byte) (int, error) {
	if !s.begun {
		s.begun = true
		s.header(s.w.Header())
		s.w.Header().Set("Trailer", FailureTrailer)
		s.w.WriteHeader(http.StatusOK)
	}
	n, err := s.w.Write(b)
	s.failed = s.failed || err != nil
	return n, err
}

// fail makes an error the trailer of an answer that has begun. It returns false if the answer has not
// begun, so that err can be the answer, or if nobody reads a trailer.
func (s *stream) fail(ctx context.Context, err error) (told bool) {
	if !s.begun || s.failed || ctx.Err() != nil {
		return false
	}
	s.w.Header().Set(FailureTrailer, url.PathEscape(answer(err).Detail))
	return true
}
