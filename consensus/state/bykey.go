package state

import (
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// ByKey wraps a change that the client of an API key has requested. Apply checks that the key is
// valid. So no change takes effect after the log entry that revoked its key, and a node need not
// make a linearizable read of the key before it proposes the change.
type ByKey struct {
	Key    KeyID
	Change Command // a change that Asked accepts
}

// Forms, which are the numbers of the types of change. The numbers are stored: never renumber.
// Forms 4 to 17, of the object gateway, need feature level 4, form 18 needs level 5, and forms
// from 19 on need level 8.
const (
	byKeyCreate          = 1
	byKeyReplace         = 2
	byKeyDelete          = 3
	byKeyCreateBucket    = 4
	byKeyDeleteBucket    = 5
	byKeySetBucketPublic = 6
	byKeySetBucketCors   = 7
	byKeySetVersioning   = 8
	byKeyPutObject       = 9
	byKeyCopyObject      = 10
	byKeyDeleteObjects   = 11
	byKeySetObjectTags   = 12
	byKeyCreateUpload    = 13
	byKeyAbortUpload     = 14
	byKeyPutPart         = 15
	byKeyCopyPart        = 16
	byKeyCompleteUpload  = 17
	byKeySetBucketTags   = 18
	byKeyCreateShare     = 19
	byKeyRevokeShare     = 20
)

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *ByKey) Code(c *codec.Coder) {
	codec.String(c, &v.Key, MaxIDLen)
	codeChange(c, &v.Change)
}

// codeChange encodes or decodes a change that a caller requests.
func codeChange(c *codec.Coder, change *Command) {
	form, _ := asked(*change)
	codec.Uint(c, &form)
	if c.Decoding() {
		*change = newAsked(form)
	}
	if *change == nil || form == 0 {
		c.Fail("no change that a key may ask for")
		return
	}
	(*change).Code(c)
}

// asked returns the form of a change that may be requested by a key or a session, and the account
// that it changes. For other commands the form is 0.
func asked(change Command) (form uint8, account AccountID) {
	switch change := change.(type) {
	case *CreatePin:
		return byKeyCreate, change.Pin.Account
	case *ReplacePin:
		return byKeyReplace, change.Pin.Account
	case *DeletePin:
		return byKeyDelete, change.Account
	case *CreateBucket:
		return byKeyCreateBucket, change.Bucket.Account
	case *DeleteBucket:
		return byKeyDeleteBucket, change.Account
	case *SetBucketPublic:
		return byKeySetBucketPublic, change.Account
	case *SetBucketCors:
		return byKeySetBucketCors, change.Account
	case *SetVersioning:
		return byKeySetVersioning, change.Account
	case *PutObject:
		return byKeyPutObject, change.Account
	case *CopyObject:
		return byKeyCopyObject, change.Account
	case *DeleteObjects:
		return byKeyDeleteObjects, change.Account
	case *SetObjectTags:
		return byKeySetObjectTags, change.Account
	case *CreateUpload:
		return byKeyCreateUpload, change.Account
	case *AbortUpload:
		return byKeyAbortUpload, change.Account
	case *PutPart:
		return byKeyPutPart, change.Account
	case *CopyPart:
		return byKeyCopyPart, change.Account
	case *CompleteUpload:
		return byKeyCompleteUpload, change.Account
	case *SetBucketTags:
		return byKeySetBucketTags, change.Account
	case *CreateShare:
		return byKeyCreateShare, change.Share.Account
	case *RevokeShare:
		return byKeyRevokeShare, change.Account
	}
	return 0, ""
}

// newAsked returns an empty change of a form, or nil if there is no such form.
func newAsked(form uint8) Command {
	switch form {
	case byKeyCreate:
		return new(CreatePin)
	case byKeyReplace:
		return new(ReplacePin)
	case byKeyDelete:
		return new(DeletePin)
	case byKeyCreateBucket:
		return new(CreateBucket)
	case byKeyDeleteBucket:
		return new(DeleteBucket)
	case byKeySetBucketPublic:
		return new(SetBucketPublic)
	case byKeySetBucketCors:
		return new(SetBucketCors)
	case byKeySetVersioning:
		return new(SetVersioning)
	case byKeyPutObject:
		return new(PutObject)
	case byKeyCopyObject:
		return new(CopyObject)
	case byKeyDeleteObjects:
		return new(DeleteObjects)
	case byKeySetObjectTags:
		return new(SetObjectTags)
	case byKeyCreateUpload:
		return new(CreateUpload)
	case byKeyAbortUpload:
		return new(AbortUpload)
	case byKeyPutPart:
		return new(PutPart)
	case byKeyCopyPart:
		return new(CopyPart)
	case byKeyCompleteUpload:
		return new(CompleteUpload)
	case byKeySetBucketTags:
		return new(SetBucketTags)
	case byKeyCreateShare:
		return new(CreateShare)
	case byKeyRevokeShare:
		return new(RevokeShare)
	}
	return nil
}

// Asked returns true if a change may be wrapped in ByKey or BySession. Other commands are
// proposed without the credentials of a caller.
func Asked(change Command) bool {
	form, _ := asked(change)
	return form != 0
}

func (v *ByKey) apply(tx Tx, e *entry) (Result, error) {
	if err := v.judge(tx); err != nil {
		return Result{}, err
	}
	return v.Change.apply(tx, e)
}

// judge returns ErrUnauthorized if the key may not request the change: the key does not exist,
// its account is disabled, it lacks the scope, or it is the key of a share that does not permit
// the change. The proposing node checks whether the key has expired, because the state has no
// clock. It also checks the scope for changes of the object gateway, which is safe because a
// key's scope never changes.
func (v *ByKey) judge(r Reader) error {
	k, err := get[APIKey](r, apiKeyKey(v.Key))
	if err != nil {
		return err
	}
	form, account := asked(v.Change)
	if k == nil {
		s, err := findShare(r, v.Key)
		if err == nil && (s == nil || s.Account != account || !s.permits(v.Change)) {
			err = ErrUnauthorized
		}
		if err != nil {
			return err
		}
	} else if k.Account != account || form <= byKeyDelete && !slices.Contains(k.Scope, ScopeWrite) {
		return ErrUnauthorized
	}
	off, err := disabled(r, account)
	if err == nil && off {
		err = ErrUnauthorized
	}
	return err
}

// Judge checks the credentials of a wrapped change as Apply would. It returns the change without
// its wrapper, and ErrUnauthorized if the check fails. For a command that is not wrapped it
// returns the command and nil.
func (v View) Judge(cmd Command) (change Command, err error) {
	switch by := cmd.(type) {
	case *ByKey:
		return by.Change, by.judge(v.r)
	case *BySession:
		return by.Change, by.judge(v.r)
	}
	return cmd, nil
}
