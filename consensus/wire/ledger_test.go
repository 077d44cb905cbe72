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
