package wire

import "github.com/holdfast-ipfs/holdfast/consensus/state"

// ledgers returns the commands of level 9.
func ledgers() []state.Command {
	return []state.Command{
		&state.PostCredits{Posting: state.Posting{
			ID: "posting", Account: "account", Kind: state.Correction, Credits: 300, Takes: true, Corrects: "other", Note: "näme", Made: 8,
		}},
		&state.ChargeStorage{Now: 300, Every: 7, Rate: 1 << 20},
	}
}

// graces returns the commands of level 10 about credits.
func graces() []state.Command {
	return []state.Command{
		&state.ChargeStorage{Now: 300, Every: 7, Rate: 1 << 20, Requests: 300},
		&state.NoteUsage{Day: 20783, Items: []state.AccountRequests{{Account: "account", Count: 300}}, Node: "node", Number: 1 << 20},
		&state.EndContent{Account: "account", Now: 300, Grace: 70_000, Items: []state.Ending{
			{Created: 8, Pin: "request"},
			{Created: 7, Bucket: "bucket", Born: 300, Key: "k", Version: "version"},
			{Created: 6, Bucket: "bucket", Born: 300, Key: "k", Upload: "upload"},
		}},
	}
}
