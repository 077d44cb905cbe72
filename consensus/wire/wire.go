// Package wire is the form in which commands and their outcomes cross the
// network and lie in the Raft log. Kind numbers are append-only: a number that
// was released means the same for ever.
//
// Imports: consensus/state, consensus/codec.
// Never:   raft, libp2p, storage.
package wire

import (
	"errors"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Kind numbers of commands.
const (
	kindInitCluster      = 1
	kindUpdateNode       = 2
	kindCreateTicket     = 3
	kindJoinNode         = 4
	kindRemoveNode       = 5
	kindCreateAccount    = 6
	kindCreateKey        = 7
	kindRevokeKey        = 8
	kindCreatePin        = 9
	kindReplacePin       = 10
	kindDeletePin        = 11
	kindReportCopies     = 12
	kindPlaceRoots       = 13
	kindSettleRoots      = 14
	kindCheckState       = 15 // level 1, as all that follow
	kindReportHash       = 16
	kindGrantVote        = 17
	kindRaiseLevel       = 18
	kindByKey            = 19
	kindCreateSession    = 20 // level 2, as all that follow
	kindEndSession       = 21
	kindNoteUses         = 22
	kindBySession        = 23
	kindRotateSigningKey = 24
	kindCreateOnce       = 25
	kindOpenAccount      = 26
	kindSetPassword      = 27
	kindCloseAccount     = 28
	kindClearAccounts    = 29
	kindSetQuota         = 30
	kindGrantCredits     = 31
	kindReportArrivals   = 32
	kindCreateBucket     = 33 // level 3, as all that follow
	kindDeleteBucket     = 34
	kindClearBuckets     = 35
	kindPutObject        = 36
	kindCopyObject       = 37
	kindDeleteObjects    = 38
	kindSetObjectTags    = 39
	kindCreateUpload     = 40
	kindAbortUpload      = 41
	kindPutPart          = 42
	kindCopyPart         = 43
	kindCompleteUpload   = 44
	kindFence            = 45
	kindSetVersioning    = 46
	kindClearUploads     = 47
	kindSetBucketPublic  = 48
	kindTurnBuckets      = 49
)

// Bounds of what this package reads and writes.
const (
	// MaxCommand is the most bytes of one encoded command.
	MaxCommand = 1 << 20
	// MaxBatch is the most commands of one log entry.
	MaxBatch = 256
	// MaxEntry is the most bytes of one log entry.
	MaxEntry = 4 << 20
)

const entryVersion = 1

// ErrUnknownKind says that a newer release wrote the command: the node cannot
// go on without it.
var ErrUnknownKind = fmt.Errorf("command of an unknown kind: %w", state.ErrTooOld)

// Command is a state.Command with the operation that it is.
type Command struct {
	Op   state.OpID
	Body state.Command
}

func kindOf(cmd state.Command) (uint16, error) {
	switch cmd.(type) {
	case *state.InitCluster:
		return kindInitCluster, nil
	case *state.UpdateNode:
		return kindUpdateNode, nil
	case *state.CreateTicket:
		return kindCreateTicket, nil
	case *state.JoinNode:
		return kindJoinNode, nil
	case *state.RemoveNode:
		return kindRemoveNode, nil
	case *state.CreateAccount:
		return kindCreateAccount, nil
	case *state.CreateKey:
		return kindCreateKey, nil
	case *state.RevokeKey:
		return kindRevokeKey, nil
	case *state.CreatePin:
		return kindCreatePin, nil
	case *state.ReplacePin:
		return kindReplacePin, nil
	case *state.DeletePin:
		return kindDeletePin, nil
	case *state.ReportCopies:
		return kindReportCopies, nil
	case *state.PlaceRoots:
		return kindPlaceRoots, nil
	case *state.SettleRoots:
		return kindSettleRoots, nil
	case *state.CheckState:
		return kindCheckState, nil
	case *state.ReportHash:
		return kindReportHash, nil
	case *state.GrantVote:
		return kindGrantVote, nil
	case *state.RaiseLevel:
		return kindRaiseLevel, nil
	case *state.ByKey:
		return kindByKey, nil
	case *state.CreateSession:
		return kindCreateSession, nil
	case *state.EndSession:
		return kindEndSession, nil
	case *state.NoteUses:
		return kindNoteUses, nil
	case *state.BySession:
		return kindBySession, nil
	case *state.RotateSigningKey:
		return kindRotateSigningKey, nil
	case *state.CreateOnce:
		return kindCreateOnce, nil
	case *state.OpenAccount:
		return kindOpenAccount, nil
	case *state.SetPassword:
		return kindSetPassword, nil
	case *state.CloseAccount:
		return kindCloseAccount, nil
	case *state.ClearAccounts:
		return kindClearAccounts, nil
	case *state.SetQuota:
		return kindSetQuota, nil
	case *state.GrantCredits:
		return kindGrantCredits, nil
	case *state.ReportArrivals:
		return kindReportArrivals, nil
	}
	return kindOfNaming(cmd)
}

func newCommand(kind uint16) (state.Command, error) {
	switch kind {
	case kindInitCluster:
		return new(state.InitCluster), nil
	case kindUpdateNode:
		return new(state.UpdateNode), nil
	case kindCreateTicket:
		return new(state.CreateTicket), nil
	case kindJoinNode:
		return new(state.JoinNode), nil
	case kindRemoveNode:
		return new(state.RemoveNode), nil
	case kindCreateAccount:
		return new(state.CreateAccount), nil
	case kindCreateKey:
		return new(state.CreateKey), nil
	case kindRevokeKey:
		return new(state.RevokeKey), nil
	case kindCreatePin:
		return new(state.CreatePin), nil
	case kindReplacePin:
		return new(state.ReplacePin), nil
	case kindDeletePin:
		return new(state.DeletePin), nil
	case kindReportCopies:
		return new(state.ReportCopies), nil
	case kindPlaceRoots:
		return new(state.PlaceRoots), nil
	case kindSettleRoots:
		return new(state.SettleRoots), nil
	case kindCheckState:
		return new(state.CheckState), nil
	case kindReportHash:
		return new(state.ReportHash), nil
	case kindGrantVote:
		return new(state.GrantVote), nil
	case kindRaiseLevel:
		return new(state.RaiseLevel), nil
	case kindByKey:
		return new(state.ByKey), nil
	case kindCreateSession:
		return new(state.CreateSession), nil
	case kindEndSession:
		return new(state.EndSession), nil
	case kindNoteUses:
		return new(state.NoteUses), nil
	case kindBySession:
		return new(state.BySession), nil
	case kindRotateSigningKey:
		return new(state.RotateSigningKey), nil
	case kindCreateOnce:
		return new(state.CreateOnce), nil
	case kindOpenAccount:
		return new(state.OpenAccount), nil
	case kindSetPassword:
		return new(state.SetPassword), nil
	case kindCloseAccount:
		return new(state.CloseAccount), nil
	case kindClearAccounts:
		return new(state.ClearAccounts), nil
	case kindSetQuota:
		return new(state.SetQuota), nil
	case kindGrantCredits:
		return new(state.GrantCredits), nil
	case kindReportArrivals:
		return new(state.ReportArrivals), nil
	}
	return newNaming(kind)
}

// EncodeCommand returns the bytes of one command.
func EncodeCommand(cmd Command) ([]byte, error) {
	kind, err := kindOf(cmd.Body)
	if err != nil {
		return nil, err
	}
	c := codec.Encoder(make([]byte, 0, 512))
	codec.Uint(c, &kind)
	codec.Fixed(c, cmd.Op[:])
	cmd.Body.Code(c)
	b, err := c.Finish()
	if err != nil {
		return nil, fmt.Errorf("wire: encode %T: %w", cmd.Body, err)
	}
	if len(b) > MaxCommand {
		return nil, state.Errorf(state.CodeTooLarge, "a command of %d bytes, the most is %d", len(b), MaxCommand)
	}
	return b, nil
}

// DecodeCommand reads one command. Its errors wrap codec.ErrMalformed or
// ErrUnknownKind.
func DecodeCommand(b []byte) (Command, error) {
	if len(b) > MaxCommand {
		return Command{}, fmt.Errorf("wire: %w: a command of %d bytes", codec.ErrMalformed, len(b))
	}
	var kind uint16
	var cmd Command
	c := codec.Decoder(b)
	codec.Uint(c, &kind)
	codec.Fixed(c, cmd.Op[:])
	if !c.More() && kind == 0 {
		_, err := c.Finish()
		return Command{}, fmt.Errorf("wire: decode command: %w", errors.Join(err, codec.ErrMalformed))
	}
	body, err := newCommand(kind)
	if err != nil {
		return Command{}, err
	}
	body.Code(c)
	if _, err := c.Finish(); err != nil {
		return Command{}, fmt.Errorf("wire: decode %T: %w", body, err)
	}
	cmd.Body = body
	return cmd, nil
}

// EncodeEntry returns the log entry that holds the encoded commands.
func EncodeEntry(commands [][]byte) ([]byte, error) {
	c := codec.Encoder(make([]byte, 0, 512))
	c.Version(entryVersion)
	codec.List(c, &commands, MaxBatch, func(c *codec.Coder, b *[]byte) { codec.Bytes(c, b, MaxCommand) })
	b, err := c.Finish()
	if err != nil {
		return nil, fmt.Errorf("wire: encode entry: %w", err)
	}
	if len(b) > MaxEntry {
		return nil, fmt.Errorf("wire: an entry of %d bytes, the most is %d", len(b), MaxEntry)
	}
	return b, nil
}

// DecodeEntry reads the commands of a log entry.
func DecodeEntry(b []byte) ([]Command, error) {
	if len(b) > MaxEntry {
		return nil, fmt.Errorf("wire: %w: an entry of %d bytes", codec.ErrMalformed, len(b))
	}
	var encoded [][]byte
	c := codec.Decoder(b)
	c.Version(entryVersion)
	codec.List(c, &encoded, MaxBatch, func(c *codec.Coder, b *[]byte) { codec.Bytes(c, b, MaxCommand) })
	if _, err := c.Finish(); err != nil {
		return nil, fmt.Errorf("wire: decode entry: %w", err)
	}
	commands := make([]Command, len(encoded))
	for i, b := range encoded {
		var err error
		if commands[i], err = DecodeCommand(b); err != nil {
			return nil, err
		}
	}
	return commands, nil
}

// Outcome is what became of a command: the entry that decided it, and its
// result or its error.
type Outcome struct {
	Index  uint64
	Result state.Result
	Err    *state.Error
}

// EncodeOutcome returns the bytes of an outcome.
func EncodeOutcome(o Outcome) ([]byte, error) {
	c := codec.Encoder(make([]byte, 0, 256))
	codec.Uint(c, &o.Index)
	_ = state.CodeOutcome(c, &o.Result, o.Err) // o.Err itself
	b, err := c.Finish()
	if err != nil {
		return nil, fmt.Errorf("wire: encode outcome: %w", err)
	}
	return b, nil
}

// DecodeOutcome reads an outcome.
func DecodeOutcome(b []byte) (Outcome, error) {
	var o Outcome
	c := codec.Decoder(b)
	codec.Uint(c, &o.Index)
	o.Err = state.CodeOutcome(c, &o.Result, nil)
	if _, err := c.Finish(); err != nil {
		return Outcome{}, fmt.Errorf("wire: decode outcome: %w", err)
	}
	return o, nil
}
