package wire

import "github.com/holdfast-ipfs/holdfast/consensus/state"

// shares returns the commands of level 8, and the same as keys and sessions ask for them.
func shares() []state.Command {
	share := state.Share{
		ID: "0123456789abcdef0123456789abcdef", Account: "account", Bucket: "bucket", Born: 41, Key: "sharekey", Name: "näme",
		Prefixes: []string{"e/", "x/one"}, Read: true, Write: true, Delete: true, Created: 5, Expires: 9000,
	}
	create := &state.CreateShare{Share: share, Expired: 7}
	revoke := &state.RevokeShare{Account: "account", Bucket: "bucket", Born: 41, ID: share.ID}
	return []state.Command{
		create, &state.ByKey{Key: "jti", Change: create}, &state.BySession{Session: "session", Change: create},
		revoke, &state.ByKey{Key: "jti", Change: revoke}, &state.BySession{Session: "session", Change: revoke},
	}
}
