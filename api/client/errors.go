package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// Kinds of errors of a cluster, for errors.Is.
var (
	ErrNotFound     = errors.New("not found")     // no such key, bucket, version or upload
	ErrDenied       = errors.New("access denied") // the credentials are wrong or do not allow the request
	ErrPrecondition = errors.New("precondition failed")
	ErrExists       = errors.New("already exists") // a bucket of that name
	ErrUnavailable  = errors.New("unavailable")    // no node answered in time
)

// Errors of the source or target of a transfer.
var (
	ErrChanged = errors.New("changed while it was read")
	ErrTooLong = errors.New("longer than 10,000 parts")
)

// Error is the failure of a request to the cluster.
type Error struct {
	Op       string // the request, such as "get s3://bucket/key"
	Endpoint string // URL of the last node that the client tried
	Status   int    // HTTP status of the answer; 0 without an answer
	Code     string // S3 error code, or reason of the pinning API or the web API, or ""
	Message  string // text of the node, or ""
	Err      error  // error of the connection, if there was no answer

	unsent  bool // no node processed the request: it was not sent, or was answered 429 or 503
	lasting bool // a later attempt on the same node will fail in the same way
	final   bool // the request cannot be repeated
	full    bool // the node has no room for an upload, and another node may have
}

func (e *Error) Error() string {
	detail := e.Message
	switch {
	case e.Status == 0:
		detail = e.Err.Error()
	case detail == "" || detail == e.Code:
		detail = http.StatusText(e.Status)
	}
	if e.Code != "" {
		detail = e.Code + ": " + detail
	}
	return fmt.Sprintf("%s: %s (%s)", e.Op, detail, e.Endpoint)
}

// Unwrap returns the error of the connection.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether e is of the given kind, such as ErrNotFound. It implements errors.Is.
func (e *Error) Is(kind error) bool {
	switch kind {
	case ErrNotFound:
		return e.Status == http.StatusNotFound
	case ErrDenied:
		return e.Status == http.StatusForbidden || e.Status == http.StatusUnauthorized
	case ErrPrecondition:
		return e.Status == http.StatusPreconditionFailed
	case ErrExists:
		return e.Code == "BucketAlreadyOwnedByYou" || e.Code == "BucketAlreadyExists"
	case ErrUnavailable:
		return e.Temporary()
	}
	return false
}

// temporary has the HTTP statuses after which another node, or a later request, may succeed.
var temporary = []int{
	http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// Temporary reports whether the same request may succeed later or on another node.
func (e *Error) Temporary() bool {
	return e.Status == 0 || e.full || slices.Contains(temporary, e.Status) || e.Code == "RequestTimeout" || e.Code == "InternalError"
}

// operation names a request in errors.
type operation struct {
	verb, bucket, key string
	once              bool // not idempotent: repeated only if no node processed it
}

func (o operation) String() string {
	if o.bucket == "" {
		return o.verb
	}
	return o.verb + " " + o.name()
}

// name returns the target in the form s3://bucket/key.
func (o operation) name() string {
	if o.key == "" {
		return "s3://" + o.bucket
	}
	return "s3://" + o.bucket + "/" + o.key
}

// describe converts the error err of a request op to the node n to an *Error. seen is what the
// transport recorded of the answer.
func describe(op operation, n *node, err error, seen answer) *Error {
	e := &Error{Op: op.String(), Endpoint: n.endpoint, Err: err}
	var known *Error
	var refused minio.ErrorResponse
	var broken *bodyError
	var told *refusal
	var last *finalError
	var full *fullError
	e.final = errors.As(err, &last)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &told):
		e.Status, e.Code, e.Message, e.Err = seen.status, told.reason, told.details, nil
	case errors.As(err, &broken): // the answer began well
		e.Err = broken.err
	case errors.As(err, &refused):
		e.Status, e.Code, e.Message, e.Err = refused.StatusCode, refused.Code, refused.Message, nil
		if e.Status == 0 || e.Status == http.StatusOK { // the body of a 200 has an error
			e.Status = http.StatusInternalServerError
		}
		if seen.status == 0 { // minio-go refused the arguments
			e.Status, e.Message = http.StatusBadRequest, refused.Message
		}
	case seen.status >= 300:
		e.Status = seen.status
	}
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	e.unsent = errors.As(err, &dial) && dial.Op == "dial" ||
		seen.status == http.StatusServiceUnavailable || seen.status == http.StatusTooManyRequests
	e.full = errors.As(err, &full)
	e.lasting = e.full || errors.As(err, &certificate)
	return e
}

// bodyError is a failure to read the body of an answer whose status was good.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return e.err.Error() }
func (e *bodyError) Unwrap() error { return e.err }

// sourceError is a failure of the local file or stream, while the client reads what it uploads or
// writes what it downloads.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// localWriter is a writer that converts the errors of to into *sourceError. The client does not
// repeat a request after such an error, because another node would not help.
type localWriter struct{ to io.Writer }

func (w localWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	if err != nil {
		err = &sourceError{err}
	}
	return n, err
}

// local returns a writer that converts the errors of w into *sourceError. If w is a
// *seal.RangeWriter, the result has a ReadFrom too, so that ciphertext is read directly into the
// buffer in which it is decrypted.
func local(w io.Writer) io.Writer {
	if to, ok := w.(*seal.RangeWriter); ok {
		return localRange{localWriter{w}, to}
	}
	return localWriter{w}
}

type localRange struct {
	localWriter
	to *seal.RangeWriter
}

func (w localRange) ReadFrom(src io.Reader) (int64, error) {
	n, err := w.to.ReadFrom(src)
	if err != nil {
		err = &sourceError{err}
	}
	return n, err
}

// localReader is the body of an upload. It converts errors of the source into *sourceError and
// stores the first. Its timer fires if the node accepts no more bytes for the duration within.
// The timer stops with the last byte; from then on the timeout of the answer applies.
type localReader struct {
	io.ReadSeeker

	sum    hash.Hash // hash of the bytes that were read, or nil
	failed error     // first error of the source
	size   int64     // bytes of the whole body
	read   int64     // bytes that were read
	timer  *time.Timer
	within time.Duration
}

// Seek moves to the start and resets the hash and the count of bytes. It returns errSeek for any
// other position.
func (r *localReader) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekStart {
		return 0, errSeek
	}
	r.read = 0
	if r.sum != nil {
		r.sum.Reset()
	}
	return r.ReadSeeker.Seek(offset, whence)
}

func (r *localReader) Read(p []byte) (int, error) {
	n, err := r.ReadSeeker.Read(p)
	if r.read += int64(n); r.read >= r.size {
		r.timer.Stop()
	} else {
		r.timer.Reset(r.within)
	}
	if r.sum != nil {
		_, _ = r.sum.Write(p[:n]) // never fails
	}
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed = &sourceError{err}
		return n, r.failed
	}
	return n, err
}
