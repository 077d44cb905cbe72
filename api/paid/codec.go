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

// Names of the headers of both versions of x402.
const (
	headerV1         = "X-PAYMENT"
	headerV1Response = "X-PAYMENT-RESPONSE"
	headerV2         = "PAYMENT-SIGNATURE"
	headerV2Required = "PAYMENT-REQUIRED"
	headerV2Response = "PAYMENT-RESPONSE"
)

// Bounds of a payment.
const (
	maxPayment    = 16 << 10 // bytes of the header's value
	signatureSize = 65       // bytes
	nonceSize     = 32       // bytes
	maxDigits     = 78       // of a number of 256 bits
	// aheadAtMost is how far the clock of a payer may be ahead of that of this node, in seconds.
	aheadAtMost = 10
)

// scheme is the only scheme of payment of this gateway.
const scheme = "exact"

// Reasons of x402 for which a payment is rejected before the facilitator is asked.
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

// offer is what a request has to pay for.
type offer struct {
	url, description, mimeType string
	amount                     *big.Int // atomic units
	seconds                    int64    // for which a payment should be valid
}

// extra has the EIP-712 domain of the asset.
type extra struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// requirementsV1 is an entry of accepts in version 1.
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

// requiredV1 is the body of a 402.
type requiredV1 struct {
	X402Version int              `json:"x402Version"`
	Error       string           `json:"error"`
	Accepts     []requirementsV1 `json:"accepts"`
}

// requirementsV2 is an entry of accepts in version 2.
type requirementsV2 struct {
	Scheme            string `json:"scheme"`
	Network           string `json:"network"`
	Amount            string `json:"amount"`
	Asset             string `json:"asset"`
	PayTo             string `json:"payTo"`
	MaxTimeoutSeconds int64  `json:"maxTimeoutSeconds"`
	Extra             extra  `json:"extra"`
}

// resourceV2 describes what is paid for.
type resourceV2 struct {
	URL         string `json:"url"`
	Description string `json:"description"`
	MimeType    string `json:"mimeType"`
}

// requiredV2 is the value of the header PAYMENT-REQUIRED.
type requiredV2 struct {
	X402Version int              `json:"x402Version"`
	Error       string           `json:"error"`
	Resource    resourceV2       `json:"resource"`
	Accepts     []requirementsV2 `json:"accepts"`
}

// caip returns the name of the network in version 2.
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

// required returns the two statements of a 402: the body of version 1 and the header of version 2.
func (t *Terms) required(o *offer, reason string) (body requiredV1, header string, err error) {
	text, err := json.Marshal(requiredV2{2, reason, resourceV2{o.url, o.description, o.mimeType}, []requirementsV2{t.v2(o)}})
	return requiredV1{1, reason, []requirementsV1{t.v1(o)}}, base64.StdEncoding.EncodeToString(text), err
}

// authorization is an EIP-3009 authorization in JSON.
type authorization struct {
	From        string `json:"from"`
	To          string `json:"to"`
	Value       string `json:"value"`
	ValidAfter  string `json:"validAfter"`
	ValidBefore string `json:"validBefore"`
	Nonce       string `json:"nonce"`
}

// paymentOf returns the payment of a request, nil without one. reason is why it is rejected before
// the facilitator is asked, or "". The payment must be for o, and valid at now by the payer's signed
// times; its signature is checked by the facilitator.
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

// fill reads an authorization into p and checks it against the offer and the clock.
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

// hexOf returns size bytes of hexadecimal digits after 0x, in lower case.
func hexOf(text string, size int) (string, bool) {
	digits, ok := strings.CutPrefix(text, "0x")
	if !ok || len(digits) != 2*size {
		return "", false
	}
	digits = strings.ToLower(digits)
	_, err := hex.DecodeString(digits)
	return "0x" + digits, err == nil
}

// numberOf parses a decimal number of at most 256 bits.
func numberOf(text string) (*big.Int, bool) {
	if text == "" || len(text) > maxDigits || strings.Trim(text, "0123456789") != "" {
		return nil, false
	}
	n, ok := new(big.Int).SetString(text, 10)
	return n, ok && n.BitLen() <= 256
}

// clamped returns a time in seconds; one beyond int64 becomes its maximum.
func clamped(n *big.Int) int64 {
	if !n.IsInt64() {
		return 1<<63 - 1
	}
	return n.Int64()
}

// response is the value of the headers that tell how a payment was settled.
type response struct {
	Success     bool   `json:"success"`
	ErrorReason string `json:"errorReason,omitempty"`
	Transaction string `json:"transaction"`
	Network     string `json:"network"`
	Payer       string `json:"payer"`
}

// respond sets the headers of a settled payment, in the names of both versions.
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
