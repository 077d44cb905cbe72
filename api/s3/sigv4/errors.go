package sigv4

import (
	"fmt"
	"net/http"
)

// Code is the reason why a request or its body is refused.
type Code uint8

// Every code. S3 tells how each is answered.
const (
	CodeNone           Code = iota // no signature
	CodeScheme                     // an Authorization that is neither Bearer nor Signature Version 4
	CodeSeveral                    // credentials in more than one place
	CodeHeader                     // the Authorization header has not the form
	CodeQuery                      // the parameters of a presigned request have not the form
	CodeURI                        // path or query are not percent-encoded
	CodeDate                       // no time, or none that can be read
	CodeSkewed                     // signed at another time than ours
	CodeExpired                    // presigned, and over or not begun
	CodeHeaders                    // headers that have to be signed are not, or signed ones are missing
	CodeDenied                     // a token where none is taken
	CodeUnknownKey                 // the access key is unknown, revoked or over
	CodeSignature                  // the signature is not that of the key
	CodeToken                      // a security token
	CodeRequest                    // a header is missing, headers contradict each other, or framing is broken
	CodeArgument                   // the value of a header, or of a form's field
	CodeChunkSignature             // a chunk or the trailers are not what was signed
	CodePayload                    // the body has not the hash that was signed
	CodeIncomplete                 // the body is shorter or longer than it was announced, or its chunks are broken
	CodeTrailer                    // trailers that are not those announced

	codes // how many there are
)

// answers are the error codes of the S3 API and their HTTP status. The specification has
// AccessDenied for a missing or invalid token. Of a signature S3 tells an access key that it
// does not know from one that did not make it, and clients tell their users: a key's name is
// no secret, and nobody guesses one.
var answers = [codes]struct {
	name   string
	status int
}{
	CodeNone:           {"AccessDenied", http.StatusForbidden},
	CodeScheme:         {"AccessDenied", http.StatusForbidden},
	CodeSeveral:        {"AccessDenied", http.StatusForbidden},
	CodeHeader:         {"AuthorizationHeaderMalformed", http.StatusBadRequest},
	CodeQuery:          {"AuthorizationQueryParametersError", http.StatusBadRequest},
	CodeURI:            {"InvalidURI", http.StatusBadRequest},
	CodeDate:           {"AccessDenied", http.StatusForbidden},
	CodeSkewed:         {"RequestTimeTooSkewed", http.StatusForbidden}, // SDKs set their clocks by it
	CodeExpired:        {"AccessDenied", http.StatusForbidden},
	CodeHeaders:        {"AccessDenied", http.StatusForbidden},
	CodeDenied:         {"AccessDenied", http.StatusForbidden},
	CodeUnknownKey:     {"InvalidAccessKeyId", http.StatusForbidden},
	CodeSignature:      {"SignatureDoesNotMatch", http.StatusForbidden},
	CodeToken:          {"InvalidToken", http.StatusBadRequest},
	CodeRequest:        {"InvalidRequest", http.StatusBadRequest},
	CodeArgument:       {"InvalidArgument", http.StatusBadRequest},
	CodeChunkSignature: {"SignatureDoesNotMatch", http.StatusForbidden}, // the key is known by then
	CodePayload:        {"XAmzContentSHA256Mismatch", http.StatusBadRequest},
	CodeIncomplete:     {"IncompleteBody", http.StatusBadRequest},
	CodeTrailer:        {"MalformedTrailerError", http.StatusBadRequest},
}

// S3 returns the error code of the S3 API and the HTTP status of c.
func (c Code) S3() (name string, status int) {
	return answers[c].name, answers[c].status
}

// Error is the refusal of a request or its body. The detail is for the client: it holds no
// secret, token or signature.
type Error struct {
	Code   Code
	Detail string

	cause error
}

func (e *Error) Error() string { return e.Detail }

// Unwrap returns the error of reading the body, if that was the cause.
func (e *Error) Unwrap() error { return e.cause }

// Is matches any Error of the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

func errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}
