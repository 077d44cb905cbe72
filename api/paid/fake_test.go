package paid

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/x402test"
	"github.com/ipfs/go-cid"
)

const chainID = 84532

const someCID = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"

// terms are the conditions of the tests.
func terms() Terms {
	return Terms{
		PayTo: "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", Network: "base-sepolia", ChainID: chainID,
		Asset: "0x036CbD53842c5426634e7929541eC2318f3dCF7e", AssetName: "USDC", AssetVersion: "2",
		PriceMiBHour: 10_000, Minimum: 1_000, MinTTL: time.Minute, MaxTTL: 30 * 24 * time.Hour, DefaultTTL: time.Hour, MaxSize: 8 << 20,
	}
}

// fake keeps paid objects in memory. It accepts every payment once, and fails with fails if set.
type fake struct {
	fails     error
	supported error

	mu      sync.Mutex
	used    map[state.PaymentID]bool
	objects map[string]*stored
	pins    map[state.RequestID]state.Pin
	put     payments.PutRequest // the last one
	asked   int                 // calls of Supported
}

type stored struct {
	payments.Opened

	content []byte
}

func (f *fake) pay(p *payments.Payment) (payments.Receipt, error) {
	if f.fails != nil {
		return payments.Receipt{}, f.fails
	}
	if f.used[p.ID()] {
		return payments.Receipt{}, payments.ErrPaymentUsed
	}
	f.used[p.ID()] = true
	return payments.Receipt{Payment: state.Payment{ID: p.ID(), State: state.PaymentPaid, Transaction: "0xabc", Amount: p.Value.String(), Until: state.Millis(time.Now().Add(time.Hour).UnixMilli())}}, nil
}

func (f *fake) Put(_ context.Context, r payments.PutRequest) (payments.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, err := io.ReadAll(r.Body.Reader)
	if err != nil {
		return payments.Receipt{}, fmt.Errorf("read body: %w", err)
	}
	f.put = r
	receipt, err := f.pay(&r.Payment)
	if err != nil {
		return receipt, err
	}
	sum := md5.Sum(content)
	o := state.Object{Key: r.Bucket + "/" + r.Key, Size: uint64(len(content)), ETag: hex.EncodeToString(sum[:]), Created: state.Millis(time.Now().UnixMilli()), Root: state.RootOf(cid.MustParse(someCID)), Headers: r.Attributes.Headers}
	receipt.Object = o
	f.objects[o.Key] = &stored{payments.Opened{Object: o, Owner: payments.Owner{Payer: r.Payment.Payer, Until: receipt.Until.Time()}}, content}
	return receipt, nil
}

func (f *fake) Pin(_ context.Context, r payments.PinRequest) (payments.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	receipt, err := f.pay(&r.Payment)
	if err == nil {
		receipt.Pin = "pin-1"
		f.pins[receipt.Pin] = state.Pin{ID: receipt.Pin, Account: state.PaidAccount, CID: r.CID, Name: r.Name, Status: state.Queued}
	}
	return receipt, err
}

func (f *fake) Delete(_ context.Context, r payments.DeleteRequest) (payments.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := r.Bucket + "/" + r.Key
	if o := f.objects[name]; o == nil {
		return payments.Receipt{}, payments.ErrNotFound
	} else if o.Owner.Payer != r.Payment.Payer {
		return payments.Receipt{}, payments.ErrNotOwner
	}
	receipt, err := f.pay(&r.Payment)
	if err == nil {
		delete(f.objects, name)
	}
	return receipt, err
}

func (f *fake) Head(_ context.Context, bucket, key string) (payments.Opened, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.objects[bucket+"/"+key]
	switch {
	case o == nil:
		return payments.Opened{}, payments.ErrNotFound
	case o.Owner.Ended:
		return payments.Opened{}, &payments.EndedError{Until: o.Owner.Until}
	}
	return o.Opened, nil
}

type content struct{ *bytes.Reader }

func (content) Close() error { return nil }

func (f *fake) Open(_ context.Context, o *payments.Opened) (io.ReadSeekCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return content{bytes.NewReader(f.objects[o.Object.Key].content)}, nil
}

func (f *fake) FindPin(_ context.Context, id state.RequestID) (state.Pin, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.pins[id]
	if !ok {
		return p, state.ErrNotFound
	}
	return p, nil
}

func (f *fake) Supported(context.Context) error {
	f.asked++
	return f.supported
}

func (f *fake) Get(ctx context.Context, account state.AccountID, id state.RequestID) (pins.Record, error) {
	p, err := f.FindPin(ctx, id)
	if account != state.PaidAccount {
		return pins.Record{}, errors.New("another account's pin")
	}
	return pins.Record{Pin: p}, err
}

// ready implements web.Health.
type ready struct{}

func (ready) Ready(context.Context) error { return nil }

// gateway is a gateway over a fake with one payer.
type gateway struct {
	t    *testing.T
	fake *fake
	url  string
	key  *x402test.Key
}

func newGateway(t *testing.T, change func(*Options)) *gateway {
	t.Helper()
	f := &fake{used: map[state.PaymentID]bool{}, objects: map[string]*stored{}, pins: map[state.RequestID]state.Pin{}}
	o := Options{Payments: f, Pins: f, Terms: terms(), Health: ready{}, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return &gateway{t, f, server.URL, x402test.NewKey()}
}

// reply is an answer with its body.
type reply struct {
	*http.Response

	body string
}

func (g *gateway) do(method, path, body string, headers ...string) reply {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return reply{resp, string(text)}
}

// required reads what a 402 requires.
func (g *gateway) required(version int, r reply) x402test.Required {
	g.t.Helper()
	if r.StatusCode != http.StatusPaymentRequired {
		g.t.Fatalf("status %d, body %s", r.StatusCode, r.body)
	}
	need, err := x402test.ReadRequired(version, r.Header, []byte(r.body))
	if err != nil {
		g.t.Fatal(err)
	}
	return need
}

// paid sends a request, pays what the answer requires in a version, and returns the second answer.
func (g *gateway) paid(version int, method, path, body string, headers ...string) reply {
	g.t.Helper()
	need := g.required(version, g.do(method, path, body, headers...))
	name, value := g.sign(need, nil)
	return g.do(method, path, body, append(headers, name, value)...)
}

func (g *gateway) sign(need x402test.Required, change func(*x402test.Authorization)) (name, value string) {
	g.t.Helper()
	name, value, err := (&x402test.Order{Key: g.key, Required: need, ChainID: chainID, Change: change}).Pay()
	if err != nil {
		g.t.Fatal(err)
	}
	return name, value
}

var _ web.Health = ready{}
