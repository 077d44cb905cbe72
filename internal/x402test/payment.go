package x402test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Names of the headers of both versions.
const (
	HeaderV1         = "X-PAYMENT"
	HeaderV1Response = "X-PAYMENT-RESPONSE"
	HeaderV2         = "PAYMENT-SIGNATURE"
	HeaderV2Required = "PAYMENT-REQUIRED"
	HeaderV2Response = "PAYMENT-RESPONSE"
)

// Requirement is an entry of accepts, of either version.
type Requirement struct {
	Scheme            string            `json:"scheme"`
	Network           string            `json:"network"`
	MaxAmountRequired string            `json:"maxAmountRequired,omitempty"` // version 1
	Amount            string            `json:"amount,omitempty"`            // version 2
	Asset             string            `json:"asset"`
	PayTo             string            `json:"payTo"`
	Resource          string            `json:"resource,omitempty"`
	Description       string            `json:"description,omitempty"`
	MimeType          string            `json:"mimeType,omitempty"`
	MaxTimeoutSeconds int64             `json:"maxTimeoutSeconds"`
	Extra             map[string]string `json:"extra,omitempty"`
}

// Required is a statement of what has to be paid, of either version.
type Required struct {
	X402Version int             `json:"x402Version"`
	Error       string          `json:"error"`
	Resource    json.RawMessage `json:"resource,omitempty"` // version 2
	Accepts     []Requirement   `json:"accepts"`
}

// signed is the signed part of a payment.
type signed struct {
	Signature     string        `json:"signature"`
	Authorization Authorization `json:"authorization"`
}

// payload is a payment of either version.
type payload struct {
	X402Version int             `json:"x402Version"`
	Scheme      string          `json:"scheme,omitempty"`
	Network     string          `json:"network,omitempty"`
	Payload     signed          `json:"payload"`
	Resource    json.RawMessage `json:"resource,omitempty"`
	Accepted    *Requirement    `json:"accepted,omitempty"`
}

// Result is the decoded header of a settled payment.
type Result struct {
	Success     bool   `json:"success"`
	ErrorReason string `json:"errorReason,omitempty"`
	Transaction string `json:"transaction"`
	Network     string `json:"network"`
	Payer       string `json:"payer"`
}

// ReadRequired returns the statement in the body of a 402, version 1, or in its header, version 2.
func ReadRequired(version int, h http.Header, body []byte) (r Required, err error) {
	if version == 2 {
		if body, err = base64.StdEncoding.DecodeString(h.Get(HeaderV2Required)); err != nil {
			return r, fmt.Errorf("decode %s: %w", HeaderV2Required, err)
		}
	}
	if err = json.Unmarshal(body, &r); err == nil && (r.X402Version != version || len(r.Accepts) == 0) {
		err = fmt.Errorf("version %d with %d ways to pay", r.X402Version, len(r.Accepts))
	}
	return r, err
}

// ReadResult decodes the header that tells how a payment was settled.
func ReadResult(header string) (r Result, err error) {
	text, err := base64.StdEncoding.DecodeString(header)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// Order is a payment to make. Change, which may be nil, alters the message before it is signed.
type Order struct {
	Key      *Key
	Required Required
	ChainID  uint64
	Now      time.Time // zero: now
	Change   func(*Authorization)
}

// Pay signs a payment for the first entry of accepts, as stock clients do. It returns the name and the value of
// the header that carries the payment.
func (o *Order) Pay() (header, value string, err error) {
	want := o.Required.Accepts[0]
	amount := want.MaxAmountRequired
	now := o.Now
	if now.IsZero() {
		now = time.Now()
	}
	after := now.Unix() - 600
	header = HeaderV1
	if o.Required.X402Version == 2 {
		header, amount, after = HeaderV2, want.Amount, 0
	}
	a := Authorization{
		From: o.Key.Address(), To: want.PayTo, Value: amount, Nonce: NewNonce(),
		ValidAfter: strconv.FormatInt(after, 10), ValidBefore: strconv.FormatInt(now.Unix()+want.MaxTimeoutSeconds, 10),
	}
	if o.Change != nil {
		o.Change(&a)
	}
	digest, err := a.Digest(&Domain{want.Extra["name"], want.Extra["version"], o.ChainID, want.Asset})
	if err != nil {
		return "", "", err
	}
	p := payload{X402Version: o.Required.X402Version, Payload: signed{o.Key.Sign(digest), a}}
	if p.X402Version == 2 {
		p.Resource, p.Accepted = o.Required.Resource, &want
	} else {
		p.Scheme, p.Network = want.Scheme, want.Network
	}
	text, err := json.Marshal(p)
	return header, base64.StdEncoding.EncodeToString(text), err
}

// NewNonce returns a random nonce.
func NewNonce() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return "0x" + hex.EncodeToString(b[:])
}
