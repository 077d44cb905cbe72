package paid

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// HTTP headers that only this gateway defines.
const (
	headerTTL      = "X-Holdfast-Ttl"   // seconds for which a request pays
	headerTTLAlias = "X-Ttl-Seconds"    // the same as headerTTL
	headerUntil    = "X-Holdfast-Until" // end of the paid time
	headerOwner    = "X-Holdfast-Owner" // address of the payer
)

// reserved has the names that are no buckets, because paths of the gateway begin with them.
var reserved = [...]string{"pins", "health"}

// keptHeaders are the headers of a PUT that the cluster stores with the object, and that a GET
// returns.
var keptHeaders = [...]string{"Content-Type", "Content-Disposition", "Content-Encoding", "Content-Language", "Cache-Control"}

// maxKeptHeader is the maximum length of a value of keptHeaders, in bytes.
const maxKeptHeader = 1024

// object is the JSON body of the answer to a PUT.
type object struct {
	Bucket      string `json:"bucket"`
	Key         string `json:"key"`
	Size        uint64 `json:"size"` // bytes
	ETag        string `json:"etag"`
	CID         string `json:"cid"`
	Until       string `json:"until"`
	Owner       string `json:"owner"`
	Amount      string `json:"amount"` // atomic units of the asset
	Transaction string `json:"transaction"`
	Network     string `json:"network"`
}

// placeOf returns the bucket and the key in the path of a request, or a 400 error. BUCKET/KEY
// together must be a valid object key, because the cluster stores the objects of all payers in
// one bucket.
func placeOf(r *http.Request) (bucket, key string, err error) {
	bucket, key = r.PathValue("bucket"), r.PathValue("key")
	for _, name := range reserved {
		if bucket == name {
			return "", "", web.BadRequest("%s is no bucket: paths below /%s are used by the gateway", name, name)
		}
	}
	switch {
	case !web.ValidBucket(bucket):
		return "", "", web.BadRequest("the bucket is not valid: 3 to 63 lower case letters, digits, dots and hyphens")
	case len(bucket)+1+len(key) > state.MaxKeyBytes:
		return "", "", web.BadRequest("bucket and key are longer than %d bytes", state.MaxKeyBytes)
	case !utf8.ValidString(key) || strings.IndexByte(key, 0) >= 0:
		return "", "", web.BadRequest("a key is UTF-8 without the character U+0000")
	}
	return bucket, key, nil
}

// ttlOf returns the storage time that a request pays for: headerTTL, headerTTLAlias, or
// DefaultTTL. It returns a 400 error if the time is malformed or out of bounds, or if the headers
// differ.
func (t *Terms) ttlOf(h http.Header) (time.Duration, error) {
	ttl, given := t.DefaultTTL, false
	for _, name := range []string{headerTTL, headerTTLAlias} {
		for _, text := range h.Values(name) {
			n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 63)
			least, most := uint64(secondsOf(t.MinTTL)), uint64(t.MaxTTL/time.Second)
			if err != nil || n < least || n > most {
				return 0, web.Errorf(http.StatusBadRequest, "INVALID_TTL", "%s must be a whole number of seconds from %d to %d", name, least, most)
			}
			asked := time.Duration(n) * time.Second
			if given && asked != ttl {
				return 0, web.Errorf(http.StatusBadRequest, "INVALID_TTL", "%s and %s differ", headerTTL, headerTTLAlias)
			}
			ttl, given = asked, true
		}
	}
	return ttl, nil
}

// lengthOf returns the Content-Length of a request in bytes. It is required, because the price
// depends on it: the error is 411 if it is absent, and 413 if it exceeds MaxSize.
func (t *Terms) lengthOf(r *http.Request) (int64, error) {
	switch n := r.ContentLength; {
	case n < 0, n == 0 && r.Header.Get("Content-Length") == "":
		return 0, web.Errorf(http.StatusLengthRequired, "LENGTH_REQUIRED", "Content-Length is required: it is the size that is paid for")
	case n > t.MaxSize:
		return 0, web.Errorf(http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "the body is larger than %d bytes", t.MaxSize)
	default:
		return n, nil
	}
}

// attributesOf returns those headers of a PUT that are stored with the object, or a 400 error for
// a malformed one.
func attributesOf(h http.Header) (objects.Attributes, error) {
	a := objects.Attributes{Headers: map[string]string{}}
	for _, name := range keptHeaders {
		value := h.Get(name)
		if len(value) > maxKeptHeader || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			return a, web.BadRequest("%s is not a text of at most %d bytes", name, maxKeptHeader)
		}
		if value != "" {
			a.Headers[name] = value
		}
	}
	return a, nil
}

// putObject answers PUT /{bucket}/{key}: it stores the body as an object for the TTL that the
// request names. The price depends on size and TTL.
func (s *surface) putObject(w http.ResponseWriter, r *http.Request) error {
	bucket, key, err := placeOf(r)
	if err != nil {
		return err
	}
	ttl, err := s.terms.ttlOf(r.Header)
	if err != nil {
		return err
	}
	size, err := s.terms.lengthOf(r)
	if err != nil {
		return err
	}
	attributes, err := attributesOf(r.Header)
	if err != nil {
		return err
	}
	o := &offer{
		description: fmt.Sprintf("store %d bytes for %d seconds", size, secondsOf(ttl)), mimeType: "application/json",
		amount: s.terms.Price(size, ttl, s.Copies()), seconds: validSeconds(size),
	}
	p, err := s.due(r, o)
	if err != nil {
		return err
	}
	body := &web.Patient{
		Body: r.Body, Control: http.NewResponseController(w), Stall: web.StallTimeout,
		Broken: payments.ErrLength,
	}
	receipt, err := s.Payments.Put(r.Context(), payments.PutRequest{
		Bucket: bucket, Key: key, Body: objects.Body{Reader: body, Size: size}, TTL: ttl, Attributes: attributes, Amount: o.amount, Payment: *p,
	})
	if err := settled(o, err); err != nil {
		return err
	}
	h := w.Header()
	identify(h, &receipt.Object)
	until := timeOf(receipt.Until.Time())
	h.Set(headerUntil, until)
	h.Set(headerOwner, receipt.ID.Payer)
	return s.ok(w, http.StatusOK, &receipt, object{
		Bucket: bucket, Key: key, Size: receipt.Object.Size, ETag: `"` + receipt.Object.ETag + `"`, CID: cidOf(&receipt.Object), Until: until,
		Owner: receipt.ID.Payer, Amount: receipt.Amount, Transaction: receipt.Transaction, Network: receipt.ID.Network,
	})
}

// cidOf returns the CID of an object's content, or "" if it has none.
func cidOf(o *state.Object) string {
	if id := o.Root.Cid(); id.Defined() {
		return id.String()
	}
	return ""
}

// identify sets the answer headers ETag, X-Holdfast-Cid and X-Holdfast-Blake3 of an object.
func identify(h http.Header, o *state.Object) {
	h.Set("Etag", `"`+o.ETag+`"`)
	if id := cidOf(o); id != "" {
		h.Set("X-Holdfast-Cid", id)
	}
	if len(o.Blake3) > 0 {
		h.Set("X-Holdfast-Blake3", hex.EncodeToString(o.Blake3))
	}
}

// getObject answers GET and HEAD /{bucket}/{key} with a stored object. Reading needs no payment.
func (s *surface) getObject(w http.ResponseWriter, r *http.Request) error {
	bucket, key, err := placeOf(r)
	if err != nil {
		return err
	}
	var found payments.Opened
	return s.Limits.SendContent(w, r, web.Content{
		Account: state.PaidAccount,
		Find: func() (state.Object, error) {
			ctx, cancel := context.WithTimeout(r.Context(), caseTimeout)
			defer cancel()
			var err error
			found, err = s.Payments.Head(ctx, bucket, key)
			return found.Object, err
		},
		Open: func(ctx context.Context, _ state.AccountID, o *state.Object) (io.ReadSeekCloser, error) {
			if r.Method == http.MethodHead {
				return &sized{size: int64(min(o.Size, math.MaxInt64))}, nil
			}
			return s.Payments.Open(ctx, &found)
		},
		Header: func(h http.Header, o *state.Object) { describe(h, o, &found.Owner) },
	})
}

// describe sets the answer headers of a GET or HEAD of an object, including its owner and the end
// of the paid time.
func describe(h http.Header, o *state.Object, owner *payments.Owner) {
	identify(h, o)
	h.Del("Cache-Control") // the object may be kept, as its own header says
	for _, name := range keptHeaders {
		if value := o.Headers[name]; value != "" {
			h.Set(name, value)
		}
	}
	if o.Headers["Content-Type"] == "" {
		h.Set("Content-Type", "application/octet-stream")
	}
	// All objects of all payers share one origin in a browser.
	h.Set("Content-Security-Policy", "sandbox")
	h.Set(headerUntil, timeOf(owner.Until))
	h.Set(headerOwner, owner.Payer)
}

// sized is a content of known size without any bytes. A HEAD needs only the size, so the content
// is not opened.
type sized struct{ at, size int64 }

// Read implements io.Reader.
func (s *sized) Read([]byte) (int, error) { return 0, io.EOF }

// Close implements io.Closer.
func (s *sized) Close() error { return nil }

// Seek implements io.Seeker.
func (s *sized) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.at
	case io.SeekEnd:
		offset += s.size
	}
	s.at = offset
	return s.at, nil
}

// deleteObject answers DELETE /{bucket}/{key}. The owner pays the minimum price; the signature of
// that payment proves the ownership.
func (s *surface) deleteObject(w http.ResponseWriter, r *http.Request) error {
	bucket, key, err := placeOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), caseTimeout)
	_, err = s.Payments.Head(ctx, bucket, key) // nobody pays for the deletion of nothing
	cancel()
	if err != nil {
		return err
	}
	o := &offer{description: "delete an object", mimeType: "application/json", amount: s.terms.Price(0, 0, 1), seconds: validSeconds(0)}
	p, err := s.due(r, o)
	if err != nil {
		return err
	}
	receipt, err := s.Payments.Delete(r.Context(), payments.DeleteRequest{Bucket: bucket, Key: key, Amount: o.amount, Payment: *p})
	if err := settled(o, err); err != nil {
		return err
	}
	if err := s.terms.respond(w.Header(), receipt.Transaction, receipt.ID.Payer); err != nil {
		return err
	}
	return web.Empty(w, http.StatusNoContent)
}
