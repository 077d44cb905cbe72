package wire

import "github.com/holdfast-ipfs/holdfast/consensus/state"

// payments returns the commands of payments, which are of level 10.
func payments() []state.Command {
	p := state.Payment{
		ID:    state.PaymentID{Network: "base-sepolia", Asset: "0xa55e7", Payer: "0x9a7e5", Nonce: "0x0123"},
		State: state.PaymentReserved, Kind: state.PaysObject, Amount: "1000", PayTo: "0x9a7ee", Request: "attempt", Node: "node",
		Object: "bucket/key", Bytes: 300, Seconds: 3600, Transaction: "0x7a", Reason: "reason", Reserved: 8, Renewed: 9, Settled: 10, Until: 11,
	}
	pin := p
	pin.Kind, pin.Object, pin.Pin = state.PaysPin, "", "request"
	deletion := p
	deletion.Kind, deletion.Bytes, deletion.Seconds = state.PaysDelete, 0, 0
	put := &state.PutObject{
		Account: state.PaidAccount, Bucket: state.PaidBucket, Born: 7,
		Object:  state.Object{ID: "version", Key: "bucket/key", Root: state.RootOf(content), Size: 300, Created: 8, ETag: "etag"},
		Content: state.Content{Root: state.RootOf(content), Bytes: 310, Blocks: 2, Held: []state.Holding{{Node: "node", Epoch: 3}}},
	}
	create := &state.CreatePin{Pin: state.Pin{ID: "request", Account: state.PaidAccount, Created: 8, CID: content.String()}, Nodes: []state.NodeID{"node"}}
	valid := p
	valid.ValidBefore = 12
	ends := func(p state.Payment) state.PaymentOutcome {
		return state.PaymentOutcome{Payment: p, Transaction: "0x7b", Now: 300}
	}
	return []state.Command{
		&state.ReservePayment{Payment: p, Now: 300},
		&state.ReleasePayment{ID: p.ID, Request: "attempt"},
		&state.CommitPayment{PaymentOutcome: ends(p), Put: put},
		&state.CommitPayment{PaymentOutcome: ends(pin), Pin: create},
		&state.FailPayment{PaymentOutcome: ends(p), Refundable: true, Reason: "why"},
		&state.SweepPayments{Now: 300},
		&state.EndPaidObjects{Now: 300},
		&state.DeletePaidObject{PaymentOutcome: ends(deletion)},
		&state.ReservePayment{Payment: valid, Now: 300},
		&state.FailPayment{PaymentOutcome: ends(valid), Reason: "why"},
		&state.ForgetPayments{Now: 300},
	}
}
