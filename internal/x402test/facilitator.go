package x402test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/evm"
)

// Reasons of the x402 protocol for which the facilitator rejects a payment.
const (
	ReasonFunds      = "insufficient_funds"
	ReasonAfter      = "invalid_exact_evm_payload_authorization_valid_after"
	ReasonBefore     = "invalid_exact_evm_payload_authorization_valid_before"
	ReasonValue      = "invalid_exact_evm_payload_authorization_value"
	ReasonSignature  = "invalid_exact_evm_payload_signature"
	ReasonRecipient  = "invalid_exact_evm_payload_recipient_mismatch"
	ReasonNetwork    = "invalid_network"
	ReasonPayload    = "invalid_payload"
	ReasonScheme     = "unsupported_scheme"
	ReasonVersion    = "invalid_x402_version"
	ReasonState      = "invalid_transaction_state" // the nonce was used
	maxRequest       = 64 << 10
	settlementMargin = 6 * time.Second // a payment must be valid for this time yet
)

// Behaviour says what a Facilitator does wrong. The zero value does nothing wrong.
type Behaviour struct {
	// Down cuts each connection without an answer.
	Down bool
	// Delay is the time before each answer of verify, and SettleDelay that of settle; the payment
	// is settled before the delay.
	Delay, SettleDelay time.Duration
	// Hold keeps each answer of settle back until it is closed; the payment is settled before. Nil: none is kept.
	Hold <-chan struct{}
	// Refuse is the reason with which every settlement is rejected.
	Refuse string
	// Lose is the number of settlements that are executed and whose connection is then cut.
	Lose int
	// Forgetful answers a repeated settlement with ReasonState, without the transaction of the
	// first.
	Forgetful bool
	// Twice executes a repeated settlement again, as an asset without nonces would.
	Twice bool
	// Status answers verify and settle with this HTTP status and a page of text. 0: none.
	Status int
}

// Transfer is a settled payment in the ledger.
type Transfer struct {
	Authorization

	Transaction string
}

// Facilitator is a facilitator on loopback for one network.
type Facilitator struct {
	URL string // http://127.0.0.1:PORT

	network string // plain name
	chainID uint64
	server  *http.Server
	now     func() time.Time

	// mu guards the fields below.
	mu        sync.Mutex
	balances  map[string]*big.Int // by address in lower case
	used      map[string]string   // transaction by payer and nonce
	transfers []Transfer
	calls     map[string]int // requests by path
	does      Behaviour
}

// Start returns a facilitator that serves until Close.
func Start(network string, chainID uint64) (*Facilitator, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a listener of a test
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	f := &Facilitator{
		URL: "http://" + l.Addr().String(), network: network, chainID: chainID, now: time.Now,
		balances: map[string]*big.Int{}, used: map[string]string{}, calls: map[string]int{},
	}
	f.server = &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = f.server.Serve(l) }() // until Close
	return f, nil
}

// Close ends the facilitator.
func (f *Facilitator) Close() error { return f.server.Close() }

// Behave changes what the facilitator does wrong from now on.
func (f *Facilitator) Behave(b Behaviour) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.does = b
}

// Fund adds atomic units to a balance.
func (f *Facilitator) Fund(address string, units int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.balance(address).Add(f.balance(address), big.NewInt(units))
}

// Balance returns a balance in atomic units.
func (f *Facilitator) Balance(address string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.balance(address).Int64()
}

// balance returns the balance of an address. The caller holds mu.
func (f *Facilitator) balance(address string) *big.Int {
	address = strings.ToLower(address)
	if f.balances[address] == nil {
		f.balances[address] = new(big.Int)
	}
	return f.balances[address]
}

// Transfers returns the settled payments in order.
func (f *Facilitator) Transfers() []Transfer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Transfer(nil), f.transfers...)
}

// Calls returns the number of requests with a path, for example /settle.
func (f *Facilitator) Calls(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[path]
}

// question is the body of verify and settle.
type question struct {
	X402Version  int         `json:"x402Version"`
	Payload      payload     `json:"paymentPayload"`
	Requirements Requirement `json:"paymentRequirements"`
}

// verdict is the answer of verify.
type verdict struct {
	IsValid       bool   `json:"isValid"`
	InvalidReason string `json:"invalidReason,omitempty"`
	Payer         string `json:"payer,omitempty"`
}

// ServeHTTP implements http.Handler.
func (f *Facilitator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.calls[r.URL.Path]++
	does := f.does
	f.mu.Unlock()
	if does.Down {
		panic(http.ErrAbortHandler)
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /supported":
		f.supported(w)
		return
	case "POST /verify", "POST /settle":
	default:
		http.NotFound(w, r)
		return
	}
	if does.Status != 0 {
		http.Error(w, "a page of a proxy", does.Status)
		return
	}
	var q question
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err == nil {
		err = json.Unmarshal(body, &q)
	}
	if r.URL.Path == "/verify" {
		pause(r, does.Delay)
		if err != nil {
			answer(w, http.StatusBadRequest, verdict{InvalidReason: ReasonPayload})
			return
		}
		f.mu.Lock()
		reason := f.check(&q)
		f.mu.Unlock()
		answer(w, http.StatusOK, verdict{reason == "", reason, q.Payload.Payload.Authorization.From})
		return
	}
	if err != nil {
		answer(w, http.StatusBadRequest, Result{ErrorReason: ReasonPayload, Network: f.network})
		return
	}
	result, lost := f.settle(&q)
	pause(r, does.SettleDelay)
	if does.Hold != nil {
		select {
		case <-does.Hold:
		case <-r.Context().Done():
		}
	}
	if lost {
		panic(http.ErrAbortHandler)
	}
	answer(w, http.StatusOK, result)
}

// pause waits, unless the client goes away before.
func pause(r *http.Request, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

func (f *Facilitator) supported(w http.ResponseWriter) {
	type kind struct {
		X402Version int    `json:"x402Version"`
		Scheme      string `json:"scheme"`
		Network     string `json:"network"`
	}
	answer(w, http.StatusOK, map[string]any{"kinds": []kind{{1, "exact", f.network}, {2, "exact", f.caip()}}})
}

// caip returns the name of the network in version 2.
func (f *Facilitator) caip() string { return "eip155:" + strconv.FormatUint(f.chainID, 10) }

// settle executes a payment. lost reports that the answer must not be sent.
func (f *Facilitator) settle(q *question) (r Result, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := q.Payload.Payload.Authorization
	r = Result{Network: q.Requirements.Network, Payer: a.From}
	if r.ErrorReason = f.does.Refuse; r.ErrorReason != "" {
		return r, false
	}
	id := strings.ToLower(a.From + a.Nonce)
	if tx, known := f.used[id]; known && !f.does.Twice {
		if f.does.Forgetful {
			r.ErrorReason = ReasonState
			return r, false
		}
		r.Success, r.Transaction = true, tx
		return r, f.loses()
	}
	if f.does.Twice {
		delete(f.used, id)
	}
	if r.ErrorReason = f.check(q); r.ErrorReason != "" {
		return r, false
	}
	value, _ := new(big.Int).SetString(a.Value, 10) // check has parsed it
	f.balance(a.From).Sub(f.balance(a.From), value)
	f.balance(a.To).Add(f.balance(a.To), value)
	tx := fmt.Sprintf("0x%x", evm.Keccak([]byte(id), []byte(strconv.Itoa(len(f.transfers)))))
	f.used[id] = tx
	f.transfers = append(f.transfers, Transfer{a, tx})
	r.Success, r.Transaction = true, tx
	return r, f.loses()
}

// loses returns whether the answer to this settlement is lost. The caller holds mu.
func (f *Facilitator) loses() bool {
	if f.does.Lose > 0 {
		f.does.Lose--
		return true
	}
	return false
}

// check returns the reason to reject a payment, or "". The caller holds mu.
func (f *Facilitator) check(q *question) string {
	p, want, a := &q.Payload, &q.Requirements, &q.Payload.Payload.Authorization
	scheme, network, amount, own := p.Scheme, p.Network, want.MaxAmountRequired, f.network
	if q.X402Version == 2 && p.Accepted != nil {
		scheme, network, amount, own = p.Accepted.Scheme, p.Accepted.Network, want.Amount, f.caip()
	}
	digest, err := a.Digest(&Domain{want.Extra["name"], want.Extra["version"], f.chainID, want.Asset})
	if err != nil {
		return ReasonPayload
	}
	signer, err := Recover(digest, p.Payload.Signature)
	value, _ := new(big.Int).SetString(a.Value, 10)
	least, ok := new(big.Int).SetString(amount, 10)
	after, _ := new(big.Int).SetString(a.ValidAfter, 10)
	before, _ := new(big.Int).SetString(a.ValidBefore, 10)
	now := f.now()
	switch {
	case q.X402Version != p.X402Version || q.X402Version != 1 && q.X402Version != 2:
		return ReasonVersion
	case scheme != "exact" || want.Scheme != "exact":
		return ReasonScheme
	case network != own || want.Network != own:
		return ReasonNetwork
	case err != nil || !strings.EqualFold(signer, a.From):
		return ReasonSignature
	case !strings.EqualFold(a.To, want.PayTo):
		return ReasonRecipient
	case before.Cmp(big.NewInt(now.Add(settlementMargin).Unix())) < 0:
		return ReasonBefore
	case after.Cmp(big.NewInt(now.Unix())) > 0:
		return ReasonAfter
	case !ok || value.Cmp(least) < 0:
		return ReasonValue
	case f.used[strings.ToLower(a.From+a.Nonce)] != "":
		return ReasonState
	case f.balance(a.From).Cmp(value) < 0:
		return ReasonFunds
	}
	return ""
}
