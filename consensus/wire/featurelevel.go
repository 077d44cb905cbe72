package wire

import "github.com/holdfast-ipfs/holdfast/consensus/state"

// FeatureLevelOf returns the lowest feature level of a cluster in which a command may be
// proposed, because every member must understand the command.
func FeatureLevelOf(cmd state.Command) state.FeatureLevel {
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
	case *state.CreatePin:
		return pinLevel(&cmd.Pin)
	case *state.ReplacePin:
		return pinLevel(&cmd.Pin)
	case *state.CreateOnce:
		return max(2, FeatureLevelOf(cmd.Change))
	case *state.EndPins:
		return state.PinsEndLevel
	case *state.PlaceRoots:
		if cmd.At > 0 {
			return 4
		}
	case *state.CheckState, *state.ReportHash, *state.GrantVote, *state.RaiseLevel:
		return 1
	case *state.CreateSession:
		return max(2, sessionLevel(&cmd.Session))
	case *state.BeginSession:
		return max(6, sessionLevel(&cmd.Session))
	case *state.EndSession, *state.NoteUses, *state.RotateSigningKey,
		*state.OpenAccount, *state.SetPassword, *state.CloseAccount, *state.ClearAccounts, *state.SetQuota,
		*state.GrantCredits, *state.ReportArrivals:
		return 2
	case *state.PutObject:
		return max(objectLevel(&cmd.Object), cmd.If.FeatureLevel())
	case *state.CopyObject:
		return max(objectLevel(&cmd.Object), cmd.If.FeatureLevel())
	case *state.CompleteUpload:
		return max(objectLevel(&cmd.Object), cmd.If.FeatureLevel())
	case *state.DeleteObjects:
		return max(3, cmd.If.FeatureLevel())
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
	case *state.OpenFirstAdmin, *state.SetAdmin, *state.AddApp, *state.RemoveApp, *state.SignUp, *state.LinkIdentity,
		*state.UnlinkIdentity, *state.AddOneTimeLink, *state.ResetPassword, *state.CloseOwnAccount:
		return 6
	case *state.Audited:
		return max(7, FeatureLevelOf(cmd.Change))
	case *state.NoteKeyShown, *state.NoteRefusals, *state.PruneAudit, *state.RemoveOneTimeLink, *state.DecideAdmin:
		return 7
	case *state.CreateShare, *state.RevokeShare:
		return 8
	case *state.NoteUsage:
		if cmd.Node != "" {
			return state.GraceLevel
		}
		return 6
	case *state.ChargeStorage:
		if cmd.Requests > 0 {
			return state.GraceLevel
		}
		return 9
	case *state.SetDrain, *state.IndexPins:
		return 10
	case *state.PackNames:
		return state.PackedNamesLevel
	case *state.SetDisabled:
		return state.DisableLevel
	case *state.ReservePayment, *state.ReleasePayment, *state.CommitPayment, *state.FailPayment, *state.SweepPayments,
		*state.EndPaidObjects, *state.DeletePaidObject, *state.ForgetPayments:
		return state.PaymentsLevel
	case *state.PostCredits:
		return 9
	case *state.EndContent:
		return state.GraceLevel
	}
	return 0
}

// pinLevel returns the lowest feature level whose releases can decode a pin's record.
func pinLevel(p *state.Pin) state.FeatureLevel {
	if p.Until != 0 || p.MaxBytes != 0 {
		return state.PinsEndLevel
	}
	return 0
}

// objectLevel returns the lowest feature level whose releases can decode an object's record.
func objectLevel(o *state.Object) state.FeatureLevel {
	if o.Wanted != "" {
		return 5
	}
	return namedLevel(o.StorageClass, o.Checksums...)
}

// namedLevel returns the lowest feature level for a record with the given storage class and
// checksums.
func namedLevel(class string, sums ...state.Checksum) state.FeatureLevel {
	if class != "" || state.NewSums(sums...) {
		return 5
	}
	return 3
}

// sessionLevel returns the lowest feature level whose releases can decode a session's record.
func sessionLevel(s *state.Session) state.FeatureLevel {
	if s.Addr != "" || s.Agent != "" {
		return state.SessionClientLevel
	}
	return 2
}

// nodeLevel returns the lowest feature level whose releases can decode a member's record.
func nodeLevel(n *state.Node) state.FeatureLevel {
	if n.FeatureLevel == 0 && n.Store == "" && !n.Votes {
		return 0
	}
	return 1
}

// askedLevel returns the lowest feature level for a change wrapped in a ByKey or a BySession. by
// is the level of that wrapper command. Wrapped changes of the object gateway need at least level
// 4.
func askedLevel(by state.FeatureLevel, change state.Command) state.FeatureLevel {
	if level := FeatureLevelOf(change); level >= 3 {
		return max(level, 4)
	}
	return by
}
