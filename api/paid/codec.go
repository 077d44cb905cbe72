package paid

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/internal/evm"
)

// HTTP header names of versions 1 and 2 of the x402 payment protocol.
const (
	headerV1         = "X-PAYMENT"
	headerV1Response = "X-PAYMENT-RESPONSE"
	headerV2         = "PAYMENT-SIGNATURE"
	headerV2Required = "PAYMENT-REQUIRED"
	headerV2Response = "PAYMENT-RESPONSE"
)

// Limits of the payment in a header.
const (
	maxPayment    = 16 << 10 // bytes of the header's value
	signatureSize = 65       // bytes
	nonceSize     = 32       // bytes
	maxDigits     = 78       // of a number of 256 bits
	// aheadAtMost is the maximum time, in seconds, by which the start of a payment's validity may be
	// in the future, because the payer's clock may be fast.
	aheadAtMost = 10
)

// scheme is the x402 payment scheme of this gateway; it supports no other.
const scheme = "exact"

// x402 error reasons with which the gateway itself rejects a payment, without a request to the
// facilitator.
const (
	reasonRequired  = "payment required"
	reasonPayload   = "invalid_payload"
	reasonVersion   = "invalid_x402_version"
	reasonScheme    = "unsupported_scheme"
	reasonNetwork   = "invalid_network"
	reasonTerms     = "invalid_payment_requirements"
	reasonRecipient = "invalid_exact_evm_payload_recipient_mismatch"
	reasonValue     = "invalid_exact_evm_payload_authorization_value"
	reasonAfter     = "invalid_exact_evm_payload_authorization_valid_after"
	reasonBefore    = "invalid_exact_evm_payload_authorization_valid_before"
	reasonUsed      = "nonce_already_used"
)

// offer describes what a request must pay for, and how much.
type offer struct {
	url, description, mimeType string
	amount                     *big.Int // atomic units
	seconds                    int64    // recommended validity of the signed payment
}

// extra has the name and version of the EIP-712 domain of the asset, which the payer needs to
// sign.
type extra struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// requirementsV1 is an element of accepts in an x402 version 1 answer: one way to pay.
type requirementsV1 struct {
	Scheme            string `json:"scheme"`
	Network           string `json:"network"`
	MaxAmountRequired string `json:"maxAmountRequired"`
	Resource          string `json:"resource"`
	Description       string `json:"description"`
	MimeType          string `json:"mimeType"`
	PayTo             string `json:"payTo"`
	MaxTimeoutSeconds int64  `json:"maxTimeoutSeconds"`
	Asset             string `json:"asset"`
	Extra             extra  `json:"extra"`
}

// requiredV1 is the body of a 402 answer in x402 version 1.
type requiredV1 struct {
	X402Version int              `json:"x402Version"`
	Error       string           `json:"error"`
	Accepts     []requirementsV1 `json:"accepts"`
}

// requirementsV2 is an element of accepts in an x402 version 2 answer: one way to pay.
type requirementsV2 struct {
	Scheme            string `json:"scheme"`
	Network           string `json:"network"`
	Amount            string `json:"amount"`
	Asset             string `json:"asset"`
	PayTo             string `json:"payTo"`
	MaxTimeoutSeconds int64  `json:"maxTimeoutSeconds"`
	Extra             extra  `json:"extra"`
}

// resourceV2 describes, in x402 version 2, the resource that the payment is for.
type resourceV2 struct {
	URL         string `json:"url"`
	Description string `json:"description"`
	MimeType    string `json:"mimeType"`
}

// requiredV2 is the value of the header PAYMENT-REQUIRED of a 402 answer in x402 version 2,
// before base64.
type requiredV2 struct {
	X402Version int              `json:"x402Version"`
	Error       string           `json:"error"`
	Resource    resourceV2       `json:"resource"`
	Accepts     []requirementsV2 `json:"accepts"`
}

// caip returns the network in the form of x402 version 2, a CAIP-2 id such as eip155:8453.
func (t *Terms) caip() string { return "eip155:" + strconv.Itoa(t.ChainID) }

func (t *Terms) v1(o *offer) requirementsV1 {
	return requirementsV1{
		Scheme: scheme, Network: t.Network, MaxAmountRequired: o.amount.String(), Resource: o.url, Description: o.description,
		MimeType: o.mimeType, PayTo: t.PayTo, MaxTimeoutSeconds: o.seconds, Asset: t.Asset, Extra: extra{t.AssetName, t.AssetVersion},
	}
}

func (t *Terms) v2(o *offer) requirementsV2 {
	return requirementsV2{
		Scheme: scheme, Network: t.caip(), Amount: o.amount.String(), Asset: t.Asset, PayTo: t.PayTo,
		MaxTimeoutSeconds: o.seconds, Extra: extra{t.AssetName, t.AssetVersion},
	}
}

// required returns the payment requirements of a 402 answer in both versions of x402: the body of
// version 1, and the value of the header of version 2. reason states why the request did not pay.
func (t *Terms) required(o *offer, reason string) (body requiredV1, header string, err error) {
	text, err := json.Marshal(requiredV2{2, reason, resourceV2{o.url, o.description, o.mimeType}, []requirementsV2{t.v2(o)}})
	return requiredV1{1, reason, []requirementsV1{t.v1(o)}}, base64.StdEncoding.EncodeToString(text), err
}

// authorization is the JSON form of an EIP-3009 authorization: the payer's signed order to
// transfer an amount once.
type authorization struct {
	From        string `json:"from"`
	To          string `json:"to"`
	Value       string `json:"value"`
	ValidAfter  string `json:"validAfter"`
	ValidBefore string `json:"validBefore"`
	Nonce       string `json:"nonce"`
}

// paymentOf parses the payment in the headers of a request. Without one it returns nil and "".
// For a payment that is malformed, not for o, or not valid at the time now, it returns nil and
// the x402 reason. The signature is checked later by the facilitator.
func (t *Terms) paymentOf(h http.Header, o *offer, now time.Time) (p *payments.Payment, reason string) {
	version, values := 2, h.Values(headerV2)
	if len(values) == 0 {
		version, values = 1, h.Values(headerV1)
	}
	if len(values) == 0 {
		return nil, ""
	}
	if len(values) > 1 || len(values[0]) > maxPayment {
		return nil, reasonPayload
	}
	text, err := base64.StdEncoding.DecodeString(values[0])
	if err != nil {
		return nil, reasonPayload
	}
	var in struct {
		X402Version *int            `json:"x402Version"`
		Scheme      string          `json:"scheme"`
		Network     string          `json:"network"`
		Accepted    *requirementsV2 `json:"accepted"`
		Payload     *struct {
			Signature     string         `json:"signature"`
			Authorization *authorization `json:"authorization"`
		} `json:"payload"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if d.Decode(&in) != nil || d.More() || in.X402Version == nil || in.Payload == nil || in.Payload.Authorization == nil ||
		version == 2 && in.Accepted == nil {
		return nil, reasonPayload
	}
	p = &payments.Payment{X402Version: version, Payload: text, Network: t.Network, Asset: strings.ToLower(t.Asset), PayTo: strings.ToLower(t.PayTo)}
	requirements := any(t.v1(o))
	if version == 2 {
		requirements = t.v2(o)
		in.Scheme, in.Network = in.Accepted.Scheme, in.Accepted.Network
	}
	if p.Requirements, err = json.Marshal(requirements); err != nil {
		return nil, reasonPayload
	}
	switch {
	case *in.X402Version != version:
		return nil, reasonVersion
	case in.Scheme != scheme:
		return nil, reasonScheme
	case version == 1 && in.Network != t.Network, version == 2 && in.Network != t.caip():
		return nil, reasonNetwork
	case version == 2 && (!strings.EqualFold(in.Accepted.Asset, t.Asset) || !strings.EqualFold(in.Accepted.PayTo, t.PayTo)):
		return nil, reasonTerms
	}
	return in.Payload.Authorization.fill(p, in.Payload.Signature, o, now)
}

// fill copies the authorization into p and returns p. If it is malformed, or does not fit the
// offer or the time now, fill returns nil and the x402 reason.
func (a *authorization) fill(p *payments.Payment, signature string, o *offer, now time.Time) (_ *payments.Payment, reason string) {
	from, okFrom := evm.Lower(a.From)
	to, okTo := evm.Lower(a.To)
	nonce, okNonce := hexOf(a.Nonce, nonceSize)
	_, okSignature := hexOf(signature, signatureSize)
	value, okValue := numberOf(a.Value)
	after, okAfter := numberOf(a.ValidAfter)
	before, okBefore := numberOf(a.ValidBefore)
	if !okFrom || !okTo || !okNonce || !okSignature || !okValue || !okAfter || !okBefore {
		return nil, reasonPayload
	}
	seconds := now.Unix()
	switch {
	case to != p.PayTo:
		return nil, reasonRecipient
	case value.Cmp(o.amount) < 0:
		return nil, reasonValue
	case after.Cmp(big.NewInt(seconds+aheadAtMost)) > 0:
		return nil, reasonAfter
	case before.Cmp(big.NewInt(seconds)) <= 0:
		return nil, reasonBefore
	}
	p.Payer, p.Nonce, p.Value = from, nonce, value
	p.ValidAfter, p.ValidBefore = clamped(after), clamped(before)
	return p, ""
}

// hexOf returns text in lower case if it is 0x with exactly size bytes in hexadecimal; otherwise
// false.
func hexOf(text string, size int) (string, bool) {
	digits, ok := strings.CutPrefix(text, "0x")
	if !ok || len(digits) != 2*size {
		return "", false
	}
	digits = strings.ToLower(digits)
	_, err := hex.DecodeString(digits)
	return "0x" + digits, err == nil
}

// numberOf parses an unsigned decimal number of at most 256 bits. It returns false for any other
// text.
func numberOf(text string) (*big.Int, bool) {
	if text == "" || len(text) > maxDigits || strings.Trim(text, "0123456789") != "" {
		return nil, false
	}
	n, ok := new(big.Int).SetString(text, 10)
	return n, ok && n.BitLen() <= 256
}

// clamped converts n to int64; a larger number becomes the maximum of int64.
func clamped(n *big.Int) int64 {
	if !n.IsInt64() {
		return 1<<63 - 1
	}
	return n.Int64()
}

// response is the x402 settlement response: the value of X-PAYMENT-RESPONSE and PAYMENT-RESPONSE,
// before base64.
type response struct {
	Success     bool   `json:"success"`
	ErrorReason string `json:"errorReason,omitempty"`
	Transaction string `json:"transaction"`
	Network     string `json:"network"`
	Payer       string `json:"payer"`
}

// respond sets the settlement response headers of both versions of x402 for a settled payment.
// transaction is the hash of the transaction on the network.
func (t *Terms) respond(h http.Header, transaction, payer string) error {
	for _, v := range []struct{ header, network string }{{headerV1Response, t.Network}, {headerV2Response, t.caip()}} {
		text, err := json.Marshal(response{Success: true, Transaction: transaction, Network: v.network, Payer: payer})
		if err != nil {
			return err
		}
		h.Set(v.header, base64.StdEncoding.EncodeToString(text))
	}
	return nil
}
