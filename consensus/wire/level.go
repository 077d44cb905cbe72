package wire

import "github.com/holdfast-ipfs/holdfast/consensus/state"

// LevelOf returns the feature level that a member must understand to apply a command.
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
	case *state.PutObject:
		return max(objectLevel(&cmd.Object), cmd.If.Level())
	case *state.CopyObject:
		return max(objectLevel(&cmd.Object), cmd.If.Level())
	case *state.CompleteUpload:
		return max(objectLevel(&cmd.Object), cmd.If.Level())
	case *state.DeleteObjects:
		return max(3, cmd.If.Level())
	case *state.CreateUpload:
		return namedLevel(cmd.Upload.StorageClass, cmd.Upload.Checksum)
	case *state.PutPart:
		return namedLevel("", cmd.Part.Checksums...)
	case *state.CopyPart:
		return namedLevel("", cmd.Part.Checksums...)
	case *state.CreateBucket, *state.DeleteBucket, *state.ClearBuckets,
		*state.SetObjectTags, *state.AbortUpload, *state.Fence, *state.SetVersioning, *state.ClearUploads, *state.SetBucketPublic, *state.TurnBuckets,
		*state.SetBucketCors, *state.SetObjectHash, *state.DateUpload:
		return 3
	case *state.SetBucketTags, *state.SetObjectSums:
		return 5
	case *state.OpenFirstAdmin, *state.SetAdmin, *state.AddApp, *state.RemoveApp:
		return 6
	}
	return 0
}

// objectLevel is the level of an object's record.
func objectLevel(o *state.Object) state.Level {
	if o.Wanted != "" {
		return 5
	}
	return namedLevel(o.StorageClass, o.Checksums...)
}

// namedLevel is the level of the record of something with a storage class and checksums.
func namedLevel(class string, sums ...state.Checksum) state.Level {
	if class != "" || state.NewSums(sums...) {
		return 5
	}
	return 3
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
	if level := LevelOf(change); level >= 3 {
		return max(level, 4)
	}
	return by
}
