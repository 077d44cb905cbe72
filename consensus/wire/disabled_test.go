package wire

import "github.com/holdfast-ipfs/holdfast/consensus/state"

// access11 returns the commands of level 11 about sign-in.
func access11() []state.Command {
	from := state.Session{ID: "session", Account: "account", Created: 1, Expires: 3, Idle: 2, Addr: "2001:db8::7", Agent: "Firefox 140 on Linux"}
	return []state.Command{
		&state.SetDisabled{Account: "other", On: true, At: 300},
		&state.CreateSession{Session: from, Password: state.Hash{1, 31: 2}, Over: 7},
		&state.BeginSession{Session: from, Identity: "identity", Link: "link", Over: 7},
	}
}
