package state

import (
	"bytes"
	"context"
	"reflect"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Audited wraps a change with the data for its row of the audit log: the actor, the address of
// the client, and the time. Apply writes the row together with the change. The command needs
// feature level 7.
type Audited struct {
	By     Actor
	At     Millis  // time by the clock of the proposer
	Change Command // a command for which ActionOf returns an action
}

// auditForms has an empty command of each type that Audited can contain. The index of a type is on
// disk: only append.
var auditForms = []func() Command{
	1:  func() Command { return new(ByKey) },
	2:  func() Command { return new(BySession) },
	3:  func() Command { return new(CreateSession) },
	4:  func() Command { return new(BeginSession) },
	5:  func() Command { return new(EndSession) },
	6:  func() Command { return new(CreateKey) },
	7:  func() Command { return new(RevokeKey) },
	8:  func() Command { return new(NoteKeyShown) },
	9:  func() Command { return new(RotateSigningKey) },
	10: func() Command { return new(CreateAccount) },
	11: func() Command { return new(OpenAccount) },
	12: func() Command { return new(OpenFirstAdmin) },
	13: func() Command { return new(SignUp) },
	14: func() Command { return new(CloseAccount) },
	15: func() Command { return new(SetQuota) },
	16: func() Command { return new(GrantCredits) },
	17: func() Command { return new(SetPassword) },
	18: func() Command { return new(ResetPassword) },
	19: func() Command { return new(SetAdmin) },
	20: func() Command { return new(AddOneTimeLink) },
	21: func() Command { return new(LinkIdentity) },
	22: func() Command { return new(UnlinkIdentity) },
	23: func() Command { return new(CreateTicket) },
	24: func() Command { return new(JoinNode) },
	25: func() Command { return new(RemoveNode) },
	26: func() Command { return new(AddApp) },
	27: func() Command { return new(RemoveApp) },
	28: func() Command { return new(CreateBucket) },
	29: func() Command { return new(DeleteBucket) },
	30: func() Command { return new(SetBucketPublic) },
	31: func() Command { return new(SetBucketCors) },
	32: func() Command { return new(CloseOwnAccount) },
	33: func() Command { return new(RemoveOneTimeLink) },
	34: func() Command { return new(DecideAdmin) },
	35: func() Command { return new(CreateShare) },
	36: func() Command { return new(RevokeShare) },
	37: func() Command { return new(PostCredits) },
	38: func() Command { return new(SetDrain) },
	39: func() Command { return new(EndContent) },
	40: func() Command { return new(SetDisabled) },
}

// formOf maps each type in auditForms to its index.
var formOf = func() map[reflect.Type]uint8 {
	forms := make(map[reflect.Type]uint8, len(auditForms))
	for form, empty := range auditForms {
		if empty != nil {
			forms[reflect.TypeOf(empty())] = uint8(form) //nolint:gosec // there are fewer than 256
		}
	}
	return forms
}()

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *Audited) Code(c *codec.Coder) {
	v.By.Code(c)
	codec.Int(c, &v.At)
	form := formOf[reflect.TypeOf(v.Change)]
	codec.Uint(c, &form)
	if c.Decoding() && int(form) < len(auditForms) && auditForms[form] != nil {
		v.Change = auditForms[form]()
	}
	if v.Change == nil || form == 0 {
		c.Fail("no change that is audited")
		return
	}
	v.Change.Code(c)
	if ActionOf(v.Change) == "" {
		c.Fail("no change that is audited")
	}
}

func (v *Audited) apply(tx Tx, e *entry) (Result, error) { return audited(tx, v, e) }

// actorKey is the key under which WithActor stores the actor in a context.
type actorKey struct{}

// WithActor returns a context in which the audit log names by as the actor of changes.
func WithActor(ctx context.Context, by Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, by)
}

// ActorOf returns the actor that WithActor stored in ctx. Without one it returns the zero Actor,
// which stands for the cluster itself.
func ActorOf(ctx context.Context) Actor {
	by, _ := ctx.Value(actorKey{}).(Actor)
	return by
}

// Audit returns a change wrapped in Audited, with the actor in ctx and the time at. If the feature
// level has no audit log or the change is not audited, Audit returns the change itself.
func Audit(ctx context.Context, change Command, at Millis, level FeatureLevel) Command {
	if level < AuditLevel || ActionOf(change) == "" {
		return change
	}
	if _, done := change.(*Audited); done {
		return change
	}
	return &Audited{By: ActorOf(ctx).clipped(), At: at, Change: change}
}

// audited applies a command. If the command is of an audited kind and has changed the state,
// audited also appends a row to the audit log.
func audited(tx Tx, cmd Command, e *entry) (Result, error) {
	var by Actor
	var at Millis
	change := cmd
	if v, ok := cmd.(*Audited); ok {
		by, at, change = v.By, v.At, v.Change
	}
	action := ActionOf(change)
	if action == "" {
		return change.apply(tx, e)
	}
	row := &AuditRow{At: at, Actor: by, Action: action, Count: 1}
	if err := row.describe(tx, change); err != nil {
		return Result{}, err
	}
	e.by = row.Actor
	writes := &noticed{Tx: tx}
	result, err := change.apply(writes, e)
	if _, shows := change.(*NoteKeyShown); err != nil || !writes.changed && !shows {
		return result, err
	}
	row.Detail = withComma(row.Detail, e.did)
	// InitCluster itself sets the feature level that its row needs, so the level is read after the
	// change.
	if level, err := levelOf(tx); err != nil || level < AuditLevel {
		return result, err
	}
	h, err := readAuditHead(tx)
	if err == nil {
		err = h.append(tx, row)
	}
	if err == nil {
		err = put(tx, auditKey, h)
	}
	return result, err
}

// noticed is a Tx that records whether a write has changed the state.
type noticed struct {
	Tx
	changed bool
}

// Set implements Tx.
func (n *noticed) Set(key, value []byte) error {
	if !n.changed {
		old, ok, err := n.Get(key)
		if err != nil {
			return err
		}
		n.changed = !ok || !bytes.Equal(old, value)
	}
	return n.Tx.Set(key, value)
}

// Delete implements Tx.
func (n *noticed) Delete(key []byte) error {
	if !n.changed {
		_, ok, err := n.Get(key)
		if err != nil {
			return err
		}
		n.changed = ok
	}
	return n.Tx.Delete(key)
}

// NoteKeyShown records in the audit log that a node shows a user the secrets of an existing API
// key or share. The command needs feature level 7.
//
// Errors: ErrNotFound if there is no such key.
type NoteKeyShown struct{ ID KeyID }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *NoteKeyShown) Code(c *codec.Coder) { codec.String(c, &v.ID, MaxIDLen) }

func (v *NoteKeyShown) apply(tx Tx, _ *entry) (Result, error) {
	there, err := has(tx, apiKeyKey(v.ID))
	if err == nil && !there {
		there, err = has(tx, shareByKey(v.ID))
	}
	if err == nil && !there {
		err = errNoKey
	}
	return Result{}, err
}
