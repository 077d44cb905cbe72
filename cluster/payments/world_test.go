package payments

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/cluster/placement"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// world is a cluster of three with a facilitator. Content is kept in memory, and time is virtual.
type world struct {
	t     *testing.T
	wrong func(format string, args ...any) // reports a promise that is not kept
	state *clustertest.State
	chain *chain
	nodes []placement.Node

	mu      sync.Mutex
	content map[cid.Cid][]byte
	kept    []*fakeKept
	ids     int
	epoch   uint64 // of all nodes
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, wrong: t.Errorf, state: clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members("n1", "n2", "n3")}),
		chain: &chain{executed: map[string]int{}}, content: map[cid.Cid][]byte{},
	}
	w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	for _, id := range []state.NodeID{"n1", "n2", "n3"} {
		w.nodes = append(w.nodes, placement.Node{ID: id, Free: 1 << 40, Alive: true})
	}
	return w
}

// disk is a journal that outlives the node.
type disk struct {
	mu      sync.Mutex
	entries map[string][]byte
	synced  int
}

func (d *disk) Get(key string) (value []byte, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	value, ok = d.entries[key]
	return value, ok
}

func (d *disk) Set(key string, value []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.entries == nil {
		d.entries = map[string][]byte{}
	}
	d.entries[key] = value
}

func (d *disk) Delete(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.entries, key)
}

func (d *disk) Keys(fn func(key string)) {
	d.mu.Lock()
	keys := slices.Collect(maps.Keys(d.entries))
	d.mu.Unlock()
	for _, key := range keys {
		fn(key)
	}
}

func (d *disk) Sync() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.synced++
}

// on returns the use case on a node that reaches the cluster by s.
func (w *world) on(node state.NodeID, s State, f Facilitator) *Payments {
	return w.onDisk(node, s, f, new(disk))
}

// onDisk is on with the journal of the node.
func (w *world) onDisk(node state.NodeID, s State, f Facilitator, d *disk) *Payments {
	o := objects.New(objects.Options{Self: node, State: s, Nodes: w, Content: w, Files: w, NewID: w.newID})
	pinner := pins.New(pins.Options{State: s, Nodes: w})
	return New(Options{Self: node, State: s, Objects: o, Pinner: pinner, Facilitator: f, Journal: d, NewID: w.newID})
}

func (w *world) newID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return fmt.Sprintf("id-%d", w.ids)
}

// Candidates implements objects.Nodes.
func (w *world) Candidates() []placement.Node { return w.nodes }

// Store implements objects.Content.
func (w *world) Store(_ context.Context, body io.Reader, place ingest.Placement) (objects.Kept, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	sum, err := multihash.Sum(data, multihash.SHA2_256, -1)
	if err != nil {
		return nil, err
	}
	c := cid.NewCidV1(cid.Raw, sum)
	w.content[c] = data
	k := &fakeKept{w: w, root: state.RootOf(c), size: uint64(len(data)), nodes: place.Nodes, epoch: w.epoch}
	w.kept = append(w.kept, k)
	return k, nil
}

// Join implements objects.Content.
func (w *world) Join(context.Context, []ingest.File, ingest.Placement) (objects.Kept, error) {
	return nil, errors.New("nothing paid has parts")
}

// Open implements objects.Files.
func (w *world) Open(_ context.Context, root cid.Cid, _ []state.NodeID) (io.ReadSeekCloser, uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	data, ok := w.content[root]
	if !ok {
		return nil, 0, state.ErrNotFound
	}
	return struct {
		io.ReadSeeker
		io.Closer
	}{bytes.NewReader(data), io.NopCloser(nil)}, uint64(len(data)), nil
}

type fakeKept struct {
	w     *world
	root  state.RootKey
	size  uint64
	nodes []state.NodeID
	epoch uint64
	told  []string
}

func (k *fakeKept) Content() state.Content {
	c := state.Content{Root: k.root, Bytes: k.size, Blocks: 1, Nodes: k.nodes}
	for _, n := range k.nodes {
		c.Held = append(c.Held, state.Holding{Node: n, Epoch: k.epoch})
	}
	return c
}
func (k *fakeKept) Size() uint64 { return k.size }
func (k *fakeKept) Renew(context.Context) error {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	k.epoch = k.w.epoch
	return nil
}
func (k *fakeKept) Done(committed bool) { k.told = append(k.told, fmt.Sprint(committed)) }
func (k *fakeKept) Unknown()            { k.told = append(k.told, "unknown") }

// chain is a network that executes each nonce once, with a facilitator that answers as verify and settle
// say. Nil means that it answers truly.
type chain struct {
	mu       sync.Mutex
	executed map[string]int // times that a nonce was executed
	settles  int            // calls of Settle

	remembers bool // the facilitator answers a repeated settlement with the transaction of the first

	verify func() error
	settle func(try int, execute func() (Settlement, error)) (Settlement, error)
}

// Verify implements Facilitator.
func (c *chain) Verify(_ context.Context, p *Payment) (string, error) {
	if c.verify != nil {
		return p.Payer, c.verify()
	}
	return p.Payer, refusal(p)
}

// signature is what a payer of drawn histories has signed, in the payload of the payment.
type signature struct{ By, PayTo, Network string }

// refusal returns the error of a facilitator for a payment that no network executes; nil for all others.
func refusal(p *Payment) error {
	s := signature{p.Payer, p.PayTo, p.Network}
	_ = json.Unmarshal(p.Payload, &s) // other tests have no signatures
	reason := ""
	switch {
	case s.By != p.Payer:
		reason = "invalid_exact_evm_payload_signature"
	case s.PayTo != p.PayTo:
		reason = "invalid_exact_evm_payload_recipient_mismatch"
	case s.Network != p.Network:
		reason = "invalid_network"
	case p.ValidBefore != 0 && time.Now().Unix() >= p.ValidBefore:
		reason = "invalid_exact_evm_payload_authorization_valid_before"
	default:
		return nil
	}
	return &Rejected{Reason: reason, Payer: p.Payer}
}

// Settle implements Facilitator.
func (c *chain) Settle(_ context.Context, p *Payment) (Settlement, error) {
	c.mu.Lock()
	c.settles++
	try := c.settles
	c.mu.Unlock()
	execute := func() (Settlement, error) { return c.execute(p) }
	if c.settle != nil {
		return c.settle(try, execute)
	}
	return execute()
}

// times returns how often a nonce was executed.
func (c *chain) times(nonce string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.executed[nonce]
}

func (c *chain) execute(p *Payment) (Settlement, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch err := refusal(p); {
	case c.executed[p.Nonce] > 0 && c.remembers:
		return Settlement{Transaction: "0x7a" + p.Nonce, Network: p.Network, Payer: p.Payer}, nil
	case err != nil:
		return Settlement{}, err
	case c.executed[p.Nonce] > 0:
		return Settlement{}, &Rejected{Reason: "invalid_transaction_state", Payer: p.Payer}
	}
	c.executed[p.Nonce]++
	return Settlement{Transaction: "0x7a" + p.Nonce, Network: p.Network, Payer: p.Payer}, nil
}

// Supported implements Facilitator.
func (c *chain) Supported(context.Context) error { return nil }

var errCut = fmt.Errorf("%w: the connection was cut", ErrFacilitator)

func paymentOf(payer, nonce string) Payment {
	return Payment{
		X402Version: 1, Network: "base-sepolia", Asset: "0xa55e7", PayTo: "0x9a7ee", Payer: payer, Nonce: nonce, Value: big.NewInt(1000),
	}
}

func putOf(key, body string, p Payment) PutRequest {
	return PutRequest{
		Bucket: "b", Key: key, Body: objects.Body{Reader: strings.NewReader(body), Size: int64(len(body))}, TTL: time.Minute,
		Amount: big.NewInt(1000), Payment: p,
	}
}

// row returns the record of a payment; State 0 means that there is none.
func (w *world) row(p Payment) state.Payment {
	w.t.Helper()
	view, release := w.state.LocalView()
	defer release()
	row, err := view.Payment(p.ID())
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		w.t.Fatal(err)
	}
	return row
}

// wantRow checks the state of a payment.
func (w *world) wantRow(p Payment, want state.PaymentState, reason string) {
	w.t.Helper()
	if row := w.row(p); row.State != want || !strings.Contains(row.Reason, reason) {
		w.t.Errorf("the payment is %s, %q, want %s, %q", row.State, row.Reason, want, reason)
	}
}

// check checks after all attempts and a sweep: nothing is stored unpaid, nothing is paid twice, and a
// payment that was executed is paid, with its content stored, or refundable.
func (w *world) check(object string, payments ...Payment) {
	w.t.Helper()
	view, release := w.state.LocalView()
	defer release()
	b, err := view.Bucket(state.PaidAccount, state.PaidBucket)
	if err != nil && !errors.Is(err, state.ErrNoBucket) {
		w.t.Fatal(err)
	}
	obj, err := view.Object(&b, object)
	if err != nil && !errors.Is(err, state.ErrNoKey) {
		w.t.Fatal(err)
	}
	stored, paid, pins := err == nil, 0, map[state.RequestID]bool{}
	for _, p := range payments {
		row, times := w.row(p), w.chain.times(p.Nonce)
		switch {
		case times > 1:
			w.wrong("payment %s was executed %d times", p.Nonce, times)
		case times == 1 && row.State != state.PaymentPaid && row.State != state.PaymentRefundable:
			w.wrong("payment %s was executed, and is %s", p.Nonce, row.State)
		case times == 0 && row.State == state.PaymentPaid:
			w.wrong("payment %s was not executed, and is paid", p.Nonce)
		case row.State == state.PaymentReserved:
			w.wrong("payment %s is still reserved", p.Nonce)
		}
		switch {
		case row.State == state.PaymentPaid && row.Kind == state.PaysPin:
			pins[row.Pin] = true
		case row.State == state.PaymentPaid:
			paid++
		}
	}
	w.checkPins(view, pins)
	if stored != (paid > 0) {
		w.wrong("%d payments are paid; stored: %t", paid, stored)
	}
	if !stored {
		return
	}
	if owner, err := view.PaidObject(object); err != nil || owner.Version != obj.ID {
		w.wrong("the owner of %s is %+v, %v", object, owner, err)
	}
	if root, err := view.Root(obj.Root); err != nil || root.Status != state.Pinned {
		w.wrong("the content is %+v, %v", root, err)
	}
}

// checkPins checks that the pins exist that are paid, and no others.
func (w *world) checkPins(view state.View, paid map[state.RequestID]bool) {
	w.t.Helper()
	_, all, err := view.ListPins(context.Background(), state.PaidAccount, state.PinQuery{Limit: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, pin := range all {
		if !paid[pin.ID] {
			w.wrong("pin %s exists, and is not paid", pin.ID)
		}
	}
	if len(all) != len(paid) {
		w.wrong("%d pins are paid, and %d exist", len(paid), len(all))
	}
}

// told checks what the holders of the newest content were told, once.
func (w *world) told(want string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.kept); n == 0 || len(w.kept[n-1].told) != 1 || w.kept[n-1].told[0] != want {
		w.t.Errorf("the holders of %d contents were not told %s once", n, want)
	}
}
