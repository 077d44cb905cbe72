package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/x402test"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Sizes of the load on the paid gateway.
const (
	paidClients = 64
	paidChain   = 84532
	paidPayTo   = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
	paidDelay   = 5 * time.Millisecond // delay of each answer of the facilitator
	paidStart   = 30 * time.Second
	paidFunds   = 1 << 50 // funds of the payer in atomic units
)

// measurePaid measures PUT requests of the paid gateway. A PUT verifies the payment, records it,
// stores the object, settles the payment and commits. The facilitator answers each request after
// paidDelay. It checks the signatures on the same machine, and the clients sign their payments
// there too.
func measurePaid(b *bench) {
	f, err := x402test.Start("base-sepolia", paidChain)
	b.must(err)
	b.Cleanup(func() { _ = f.Close() })
	f.Behave(x402test.Behaviour{Delay: paidDelay, SettleDelay: paidDelay})
	c := harness.Start(b, harness.Options{Env: append(rates(), "HOLDFAST_ACCOUNTS_ALLOWANCE=1TiB"), Settings: fmt.Sprintf(
		"[paid]\nlisten = \"127.0.0.1:0\"\npay_to = %q\nnetwork = \"base-sepolia\"\nfacilitator = %q\n", paidPayTo, f.URL)})
	key := x402test.NewKey()
	f.Fund(key.Address(), paidFunds)
	to, err := newService("http://"+c.Followers()[0].Status().Node.Paid, "none")
	b.must(err)

	body := make([]byte, smallObject)
	need := b.price(to, body)
	// A node that has just started sells nothing until it knows the agreed time.
	harness.Eventually(b, paidStart, "the first paid PUT", func() (bool, error) {
		name, value, err := (&x402test.Order{Key: key, Required: need, ChainID: paidChain}).Pay()
		if err != nil {
			return false, err
		}
		conn, err := to.dial(b.ctx)
		if err != nil {
			return false, err
		}
		defer conn.net.Close()
		a, err := conn.do(http.MethodPut, "/bench/first", body, name, value)
		return err == nil && a.status == http.StatusOK, err
	})
	bodies := make(chan []byte, paidClients)
	for range paidClients {
		bodies <- slices.Clone(body)
	}
	free := &store{b: b, cluster: c, token: c.Nodes[0].UserKey("free@example.org").Token, bucket: "/free"}
	free.one(free.at(c.Followers()[0]), http.MethodPut, free.bucket, nil)
	free.run(fmt.Sprintf("paid PUT 64 KiB, %d clients, facilitator of %d ms", paidClients, paidDelay.Milliseconds()), "500/s", to, load{
		clients: paidClients, time: b.load, discard: true, done: func(r request) { bodies <- r.body },
		make: func(n int) request {
			content := <-bodies
			binary.LittleEndian.PutUint64(content, uint64(n)<<32|rand.Uint64()&0xffffffff)
			name, value, err := (&x402test.Order{Key: key, Required: need, ChainID: paidChain}).Pay()
			if err != nil {
				b.Errorf("sign a payment: %v", err)
			}
			return request{method: http.MethodPut, path: fmt.Sprintf("/bench/%08d", n), body: content, want: http.StatusOK, headers: []string{name, value}}
		},
	}, 0)
	free.run(fmt.Sprintf("the same without payments, %d clients", paidClients), "", free.at(c.Followers()[0]), free.puts("k", smallObject, paidClients), 0)
}

// price returns the payment that a PUT of a body requires.
func (b *bench) price(to service, body []byte) x402test.Required {
	c, err := to.dial(b.ctx)
	b.must(err)
	defer c.net.Close()
	a, err := c.do(http.MethodPut, "/bench/price", body)
	b.must(err)
	need, err := x402test.ReadRequired(1, nil, a.body)
	b.must(err)
	return need
}
