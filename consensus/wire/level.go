package wire

import "github.com/holdfast-ipfs/holdfast/consensus/state"

// LevelOf is the level that a member has to understand to apply a command.
func LevelOf(cmd state.Command) state.Level {
	switch cmd := cmd.(type) {
	case *state.InitCluster:
		return nodeLevel(&cmd.Node)
	case *state.UpdateNode:
		return nodeLevel(&cmd.Node)
	case *state.JoinNode:
		return nodeLevel(&cmd.Node)
	case *state.ByKey:
		return askedLevel(1, cmd.Change)
	case *state.BySession:
		return askedLevel(2, cmd.Change)
	case *state.PlaceRoots:
		if cmd.At > 0 {
			return 4
		}
	case *state.CheckState, *state.ReportHash, *state.GrantVote, *state.RaiseLevel:
		return 1
	case *state.CreateSession, *state.EndSession, *state.NoteUses, *state.RotateSigningKey,
		*state.CreateOnce, *state.OpenAccount, *state.SetPassword, *state.CloseAccount, *state.ClearAccounts, *state.SetQuota,
		*state.GrantCredits, *state.ReportArrivals:
		return 2
	case *state.CreateBucket, *state.DeleteBucket, *state.ClearBuckets, *state.PutObject, *state.CopyObject, *state.DeleteObjects,
		*state.SetObjectTags, *state.CreateUpload, *state.AbortUpload, *state.PutPart, *state.CopyPart, *state.CompleteUpload,
		*state.Fence, *state.SetVersioning, *state.ClearUploads, *state.SetBucketPublic, *state.TurnBuckets,
		*state.SetBucketCors, *state.SetObjectHash, *state.DateUpload:
		return 3
	}
	return 0
}

// nodeLevel is the level of the form in which a member's record is written.
func nodeLevel(n *state.Node) state.Level {
	if n.Level == 0 && n.Store == "" && !n.Votes {
		return 0
	}
	return 1
}

// askedLevel is the level of a change that somebody asks for, in what is of level by: those of
// the object gateway came there later.
func askedLevel(by state.Level, change state.Command) state.Level {
	if LevelOf(change) >= 3 {
		return 4
	}
	return by
}
