package wire

import (
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// kindOfNaming is kindOf for the commands of level 3.
func kindOfNaming(cmd state.Command) (uint16, error) {
	switch cmd.(type) {
	case *state.CreateBucket:
		return kindCreateBucket, nil
	case *state.DeleteBucket:
		return kindDeleteBucket, nil
	case *state.ClearBuckets:
		return kindClearBuckets, nil
	case *state.PutObject:
		return kindPutObject, nil
	case *state.CopyObject:
		return kindCopyObject, nil
	case *state.DeleteObjects:
		return kindDeleteObjects, nil
	case *state.SetObjectTags:
		return kindSetObjectTags, nil
	case *state.CreateUpload:
		return kindCreateUpload, nil
	case *state.AbortUpload:
		return kindAbortUpload, nil
	case *state.PutPart:
		return kindPutPart, nil
	case *state.CopyPart:
		return kindCopyPart, nil
	case *state.CompleteUpload:
		return kindCompleteUpload, nil
	case *state.Fence:
		return kindFence, nil
	case *state.SetVersioning:
		return kindSetVersioning, nil
	case *state.ClearUploads:
		return kindClearUploads, nil
	case *state.SetBucketPublic:
		return kindSetBucketPublic, nil
	case *state.TurnBuckets:
		return kindTurnBuckets, nil
	}
	return 0, fmt.Errorf("wire: %T has no kind number", cmd)
}

// newNaming is newCommand for the commands of level 3.
func newNaming(kind uint16) (state.Command, error) {
	switch kind {
	case kindCreateBucket:
		return new(state.CreateBucket), nil
	case kindDeleteBucket:
		return new(state.DeleteBucket), nil
	case kindClearBuckets:
		return new(state.ClearBuckets), nil
	case kindPutObject:
		return new(state.PutObject), nil
	case kindCopyObject:
		return new(state.CopyObject), nil
	case kindDeleteObjects:
		return new(state.DeleteObjects), nil
	case kindSetObjectTags:
		return new(state.SetObjectTags), nil
	case kindCreateUpload:
		return new(state.CreateUpload), nil
	case kindAbortUpload:
		return new(state.AbortUpload), nil
	case kindPutPart:
		return new(state.PutPart), nil
	case kindCopyPart:
		return new(state.CopyPart), nil
	case kindCompleteUpload:
		return new(state.CompleteUpload), nil
	case kindFence:
		return new(state.Fence), nil
	case kindSetVersioning:
		return new(state.SetVersioning), nil
	case kindClearUploads:
		return new(state.ClearUploads), nil
	case kindSetBucketPublic:
		return new(state.SetBucketPublic), nil
	case kindTurnBuckets:
		return new(state.TurnBuckets), nil
	}
	return nil, fmt.Errorf("%w (kind %d)", ErrUnknownKind, kind)
}
