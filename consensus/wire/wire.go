// Package wire encodes commands and their outcomes for the network and the Raft log.
// Kind numbers are append-only: a released number never changes its meaning.
//
// Imports: consensus/state, consensus/codec.
// Never:   raft, libp2p, storage.
package wire

import (
	"errors"
	"fmt"
	"reflect"

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
	kindCheckState       = 15 // feature level 1, like the following kinds
	kindReportHash       = 16
	kindGrantVote        = 17
	kindRaiseLevel       = 18
	kindByKey            = 19
	kindCreateSession    = 20 // feature level 2, like the following kinds
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
	kindCreateBucket     = 33 // feature level 3, like the following kinds
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
	kindSetBucketCors    = 50
	kindSetObjectHash    = 51
	kindDateUpload       = 52
	kindSetBucketTags    = 53 // feature level 5, like the following kinds
	kindSetObjectSums    = 54
	kindOpenFirstAdmin   = 55 // feature level 6, like the following kinds
	kindSetAdmin         = 56
	kindAddApp           = 57
	kindRemoveApp        = 58
	kindSignUp           = 59
	kindLinkIdentity     = 60
	kindUnlinkIdentity   = 61
	kindAddOneTimeLink   = 62
	kindResetPassword    = 63
	kindBeginSession     = 64
	kindNoteUsage        = 65
	kindCloseOwnAccount  = 66
	kindAudited          = 67 // feature level 7, like the following kinds
	kindNoteKeyShown     = 68
	kindNoteRefusals     = 69
	kindPruneAudit       = 70
	kindRemoveOneTime    = 71
	kindDecideAdmin      = 72
	kindCreateShare      = 73 // feature level 8, like the following kinds
	kindRevokeShare      = 74
	kindPostCredits      = 85 // feature level 9, like the following kinds
	kindChargeStorage    = 86
	kindEndPins          = 87 // feature level 10, like the following kinds
	kindReservePayment   = 90
	kindReleasePayment   = 91
	kindCommitPayment    = 92
	kindFailPayment      = 93
	kindSweepPayments    = 94
	kindEndPaidObjects   = 95
	kindDeletePaidObject = 96
	kindEndContent       = 97
	kindSetDrain         = 100
	kindIndexPins        = 101
	kindForgetPayments   = 102
	kindPackNames        = 103 // feature level 11, like the following kinds
	kindSetDisabled      = 104
)

// Limits of what this package reads and writes.
const (
	// MaxCommand is the largest size of one encoded command in bytes.
	MaxCommand = 1 << 20
	// MaxBatch is the largest number of commands in one log entry.
	MaxBatch = 256
	// MaxEntry is the largest size of one log entry in bytes.
	MaxEntry = 4 << 20
)

const entryVersion = 1

// ErrUnknownKind means that a newer release wrote the command. A node that meets such a command
// in the log must stop, because it cannot apply it.
var ErrUnknownKind = fmt.Errorf("command of an unknown kind: %w", state.ErrTooOld)

// Command is a state.Command with its operation id.
type Command struct {
	Op   state.OpID
	Body state.Command
}

// commands returns a new, empty command for each kind.
var commands = map[uint16]func() state.Command{
	kindInitCluster:      func() state.Command { return new(state.InitCluster) },
	kindUpdateNode:       func() state.Command { return new(state.UpdateNode) },
	kindCreateTicket:     func() state.Command { return new(state.CreateTicket) },
	kindJoinNode:         func() state.Command { return new(state.JoinNode) },
	kindRemoveNode:       func() state.Command { return new(state.RemoveNode) },
	kindCreateAccount:    func() state.Command { return new(state.CreateAccount) },
	kindCreateKey:        func() state.Command { return new(state.CreateKey) },
	kindRevokeKey:        func() state.Command { return new(state.RevokeKey) },
	kindCreatePin:        func() state.Command { return new(state.CreatePin) },
	kindReplacePin:       func() state.Command { return new(state.ReplacePin) },
	kindDeletePin:        func() state.Command { return new(state.DeletePin) },
	kindReportCopies:     func() state.Command { return new(state.ReportCopies) },
	kindPlaceRoots:       func() state.Command { return new(state.PlaceRoots) },
	kindSettleRoots:      func() state.Command { return new(state.SettleRoots) },
	kindCheckState:       func() state.Command { return new(state.CheckState) },
	kindReportHash:       func() state.Command { return new(state.ReportHash) },
	kindGrantVote:        func() state.Command { return new(state.GrantVote) },
	kindRaiseLevel:       func() state.Command { return new(state.RaiseLevel) },
	kindByKey:            func() state.Command { return new(state.ByKey) },
	kindCreateSession:    func() state.Command { return new(state.CreateSession) },
	kindEndSession:       func() state.Command { return new(state.EndSession) },
	kindNoteUses:         func() state.Command { return new(state.NoteUses) },
	kindBySession:        func() state.Command { return new(state.BySession) },
	kindRotateSigningKey: func() state.Command { return new(state.RotateSigningKey) },
	kindCreateOnce:       func() state.Command { return new(state.CreateOnce) },
	kindOpenAccount:      func() state.Command { return new(state.OpenAccount) },
	kindSetPassword:      func() state.Command { return new(state.SetPassword) },
	kindCloseAccount:     func() state.Command { return new(state.CloseAccount) },
	kindClearAccounts:    func() state.Command { return new(state.ClearAccounts) },
	kindSetQuota:         func() state.Command { return new(state.SetQuota) },
	kindGrantCredits:     func() state.Command { return new(state.GrantCredits) },
	kindReportArrivals:   func() state.Command { return new(state.ReportArrivals) },
	kindCreateBucket:     func() state.Command { return new(state.CreateBucket) },
	kindDeleteBucket:     func() state.Command { return new(state.DeleteBucket) },
	kindClearBuckets:     func() state.Command { return new(state.ClearBuckets) },
	kindPutObject:        func() state.Command { return new(state.PutObject) },
	kindCopyObject:       func() state.Command { return new(state.CopyObject) },
	kindDeleteObjects:    func() state.Command { return new(state.DeleteObjects) },
	kindSetObjectTags:    func() state.Command { return new(state.SetObjectTags) },
	kindCreateUpload:     func() state.Command { return new(state.CreateUpload) },
	kindAbortUpload:      func() state.Command { return new(state.AbortUpload) },
	kindPutPart:          func() state.Command { return new(state.PutPart) },
	kindCopyPart:         func() state.Command { return new(state.CopyPart) },
	kindCompleteUpload:   func() state.Command { return new(state.CompleteUpload) },
	kindFence:            func() state.Command { return new(state.Fence) },
	kindSetVersioning:    func() state.Command { return new(state.SetVersioning) },
	kindClearUploads:     func() state.Command { return new(state.ClearUploads) },
	kindSetBucketPublic:  func() state.Command { return new(state.SetBucketPublic) },
	kindTurnBuckets:      func() state.Command { return new(state.TurnBuckets) },
	kindSetBucketCors:    func() state.Command { return new(state.SetBucketCors) },
	kindSetObjectHash:    func() state.Command { return new(state.SetObjectHash) },
	kindDateUpload:       func() state.Command { return new(state.DateUpload) },
	kindSetBucketTags:    func() state.Command { return new(state.SetBucketTags) },
	kindSetObjectSums:    func() state.Command { return new(state.SetObjectSums) },
	kindOpenFirstAdmin:   func() state.Command { return new(state.OpenFirstAdmin) },
	kindSetAdmin:         func() state.Command { return new(state.SetAdmin) },
	kindAddApp:           func() state.Command { return new(state.AddApp) },
	kindRemoveApp:        func() state.Command { return new(state.RemoveApp) },
	kindSignUp:           func() state.Command { return new(state.SignUp) },
	kindLinkIdentity:     func() state.Command { return new(state.LinkIdentity) },
	kindUnlinkIdentity:   func() state.Command { return new(state.UnlinkIdentity) },
	kindAddOneTimeLink:   func() state.Command { return new(state.AddOneTimeLink) },
	kindResetPassword:    func() state.Command { return new(state.ResetPassword) },
	kindBeginSession:     func() state.Command { return new(state.BeginSession) },
	kindNoteUsage:        func() state.Command { return new(state.NoteUsage) },
	kindCloseOwnAccount:  func() state.Command { return new(state.CloseOwnAccount) },
	kindAudited:          func() state.Command { return new(state.Audited) },
	kindNoteKeyShown:     func() state.Command { return new(state.NoteKeyShown) },
	kindNoteRefusals:     func() state.Command { return new(state.NoteRefusals) },
	kindPruneAudit:       func() state.Command { return new(state.PruneAudit) },
	kindRemoveOneTime:    func() state.Command { return new(state.RemoveOneTimeLink) },
	kindDecideAdmin:      func() state.Command { return new(state.DecideAdmin) },
	kindCreateShare:      func() state.Command { return new(state.CreateShare) },
	kindRevokeShare:      func() state.Command { return new(state.RevokeShare) },
	kindPostCredits:      func() state.Command { return new(state.PostCredits) },
	kindChargeStorage:    func() state.Command { return new(state.ChargeStorage) },
	kindEndPins:          func() state.Command { return new(state.EndPins) },
	kindEndContent:       func() state.Command { return new(state.EndContent) },
	kindSetDrain:         func() state.Command { return new(state.SetDrain) },
	kindIndexPins:        func() state.Command { return new(state.IndexPins) },
	kindPackNames:        func() state.Command { return new(state.PackNames) },
	kindSetDisabled:      func() state.Command { return new(state.SetDisabled) },
	kindReservePayment:   func() state.Command { return new(state.ReservePayment) },
	kindReleasePayment:   func() state.Command { return new(state.ReleasePayment) },
	kindCommitPayment:    func() state.Command { return new(state.CommitPayment) },
	kindFailPayment:      func() state.Command { return new(state.FailPayment) },
	kindSweepPayments:    func() state.Command { return new(state.SweepPayments) },
	kindEndPaidObjects:   func() state.Command { return new(state.EndPaidObjects) },
	kindForgetPayments:   func() state.Command { return new(state.ForgetPayments) },
	kindDeletePaidObject: func() state.Command { return new(state.DeletePaidObject) },
}

// kinds maps the types of commands to their kind numbers.
var kinds = func() map[reflect.Type]uint16 {
	all := make(map[reflect.Type]uint16, len(commands))
	for kind, empty := range commands {
		all[reflect.TypeOf(empty())] = kind
	}
	return all
}()

func kindOf(cmd state.Command) (uint16, error) {
	if kind, ok := kinds[reflect.TypeOf(cmd)]; ok {
		return kind, nil
	}
	return 0, fmt.Errorf("wire: %T has no kind number", cmd)
}

func newCommand(kind uint16) (state.Command, error) {
	if empty, ok := commands[kind]; ok {
		return empty(), nil
	}
	return nil, fmt.Errorf("%w (kind %d)", ErrUnknownKind, kind)
}

// EncodeCommand returns the bytes of one command: its kind number, its operation id and its fields. It
// returns state.ErrTooLarge above MaxCommand bytes, and an error that wraps codec.ErrMalformed if a field
// is above its bound.
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

// EncodeEntry returns a log entry that contains the given commands, each encoded by
// EncodeCommand. It returns an error above MaxBatch commands or MaxEntry bytes.
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

// DecodeEntry reads the commands of a log entry. It returns the errors of DecodeCommand.
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

// Outcome is the outcome of a command: the index of the entry that decided it, and the result
// or the error.
type Outcome struct {
	Index  uint64
	Result state.Result
	Err    *state.Error
}

// EncodeOutcome returns the bytes of an outcome. Its errors wrap codec.ErrMalformed.
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

// DecodeOutcome reads an outcome. Its errors wrap codec.ErrMalformed.
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
