package wire

import "github.com/holdfast-ipfs/holdfast/consensus/state"

// namings returns one command of each kind of level 3.
func namings() []state.Command {
	const born = 41 // what founded gives the bucket
	sums := []state.Checksum{{Algorithm: "CRC32", Value: []byte{1, 2, 3, 4}, Composite: true}}
	stored := state.Content{
		Root: state.RootOf(content), Bytes: 9, Blocks: 2, Nodes: []state.NodeID{"n2", "node"}, Held: []state.Holding{{Node: "node", Epoch: 300}},
	}
	blake3 := append([]byte{3}, make([]byte, state.Blake3Bytes-1)...)
	object := func(id state.VersionID, key string) state.Object {
		return state.Object{
			ID: id, Key: key, Root: stored.Root, Size: 7, Created: 10, ETag: "etag",
			Headers: map[string]string{"Content-Type": "text/plain", "Expires": "0"}, Meta: map[string]string{"m": "ä"},
			Tags: []state.Tag{{Key: "b", Value: "1"}, {Key: "a", Value: "2"}}, Checksums: sums,
			Parts: []state.PartRun{{Size: 3, Count: 2}, {Size: 1, Count: 1}}, Upload: "done", Listed: state.Hash{4}, Blake3: blake3,
		}
	}
	whole := object(state.VersionOf("up"), "big")
	whole.Upload, whole.Parts = "up", []state.PartRun{{Size: 7, Count: 1}}
	upload := func(id state.UploadID) state.Upload {
		return state.Upload{
			ID: id, Key: "big", Created: 12, Since: 13, Headers: map[string]string{"Content-Type": "text/plain"}, Meta: map[string]string{"m": "1"},
			Tags: []state.Tag{{Key: "b", Value: "1"}}, Checksum: state.Checksum{Algorithm: "SHA256", Composite: true}, Nodes: []state.NodeID{"node"},
		}
	}
	return []state.Command{
		&state.RaiseLevel{FeatureLevel: 3},
		&state.CreateBucket{Bucket: state.Bucket{Account: "account", Name: "bucket", Born: 3, Created: 4}},
		&state.PutObject{
			Account: "account", Bucket: "bucket", Born: born, Object: object("v1", "a/b\x00\xff"), Content: stored,
			If: state.Condition{Absent: true, Match: []string{"etag", "*"}},
		},
		&state.PutObject{Account: "account", Bucket: "bucket", Born: born, Object: object("v2", "a/c"), Content: stored},
		&state.CopyObject{
			Account: "account", Bucket: "bucket", Born: born, Object: object("v3", "copy"), If: state.Condition{Absent: true},
			SourceBucket: "bucket", SourceBorn: born, SourceKey: "a/c", SourceID: "v2", KeepTags: true,
		},
		&state.SetObjectTags{
			Account: "account", Bucket: "bucket", Born: born, Key: "copy", ID: "v3", Tags: []state.Tag{{Key: "k", Value: ""}, {Key: "j", Value: "ä"}},
		},
		&state.CreateUpload{Account: "account", Bucket: "bucket", Born: born, Upload: upload("up")},
		&state.CreateUpload{Account: "account", Bucket: "bucket", Born: born, Upload: upload("other")},
		&state.PutPart{
			Account: "account", Bucket: "bucket", Born: born, Key: "big", Upload: "up", Content: stored,
			Part: state.Part{
				Number: 10_000, ID: "p1", Root: stored.Root, Size: 7, Created: 11, ETag: "e", Checksums: sums,
				Blake3: blake3, At: 1 << 40, Trees: blake3,
			},
		},
		&state.CopyPart{
			Account: "account", Bucket: "bucket", Born: born, Key: "big", Upload: "other",
			Part:         state.Part{Number: 1, ID: "p2", Root: stored.Root, Size: 7, Created: 11, ETag: "e"},
			SourceBucket: "bucket", SourceBorn: born, SourceKey: "a/c", SourceID: "v2",
		},
		&state.CompleteUpload{
			Account: "account", Bucket: "bucket", Born: born, Object: whole, Content: stored,
			Parts: state.ListParts([]state.Part{{Number: 3, ID: "p3"}, {Number: 20, ID: "p20"}}), If: state.Condition{Match: []string{"e"}},
		},
		&state.DateUpload{Account: "account", Bucket: "bucket", Born: born, Key: "big", ID: "other", Since: 11},
		&state.AbortUpload{Account: "account", Bucket: "bucket", Born: born, Key: "big", ID: "other"},
		&state.DeleteObjects{
			Account: "account", Bucket: "bucket", Born: born, Keys: []string{"a/c"}, If: state.Condition{Match: []string{"etag"}},
			IDs: []state.VersionID{"v2"}, Marker: "m1", Created: 13,
		},
		&state.SetObjectHash{Account: "account", Born: born, Key: "a/c", ID: "v4", Root: stored.Root, Blake3: blake3},
		&state.SetBucketCors{Account: "account", Bucket: "bucket", Born: born, Cors: state.Cors{Rules: []state.CorsRule{
			{ID: "rule", Origins: []string{"https://*.example.org"}, Methods: []string{"GET", "PUT"}, Headers: []string{"*"}, Expose: []string{"ETag"}, MaxAge: 3000},
			{Origins: []string{"*"}, Methods: []string{"HEAD"}, MaxAge: -1},
		}}},
		&state.DeleteBucket{Account: "account", Name: "bucket", Born: born},
		&state.ClearBuckets{Items: []state.BucketRef{{Account: "account", Born: born}}},
		&state.Fence{Node: "node", Epoch: 3},
		&state.SetVersioning{Account: "account", Bucket: "bucket", Born: born, Versioning: state.Suspended},
		&state.ClearUploads{Items: []state.UploadRef{{Account: "account", Born: born, ID: "up"}}},
		&state.CreateBucket{Bucket: state.Bucket{Account: "account", Name: "shown", Created: 4, Public: true}},
		&state.SetBucketPublic{Account: "account", Name: "shown", Born: born, Public: true},
		&state.TurnBuckets{Items: []state.BucketName{{Account: "account", Name: "shown"}}},
	}
}

// namings5 has commands of level 5: those of its own kinds, and others with what it brought.
func namings5() []state.Command {
	const born = 41 // what founded gives the bucket
	stored := state.Content{Root: state.RootOf(content), Bytes: 9, Blocks: 2, Held: []state.Holding{{Node: "node", Epoch: 300}}}
	object := state.Object{ID: "v6", Key: "six", Root: stored.Root, Size: 7, Created: 10, ETag: "etag"}
	classed, wanting, summed := object, object, object
	classed.StorageClass = "STANDARD_IA"
	wanting.Wanted = "XXHASH128"
	summed.Checksums = []state.Checksum{{Algorithm: "SHA512", Value: make([]byte, state.MaxSumBytes)}}
	part := state.Part{Number: 1, ID: "p1", Root: stored.Root, Size: 7, Created: 11, ETag: "e", Checksums: []state.Checksum{{Algorithm: "MD5", Value: make([]byte, 16)}}}
	tags := &state.SetBucketTags{Account: "account", Bucket: "bucket", Born: born, Tags: state.BucketTags{Tags: []state.Tag{{Key: "b", Value: "1"}, {Key: "a"}}}}
	return []state.Command{
		tags,
		&state.SetObjectSums{
			Account: "account", Born: born, Key: "six", ID: "v6", Root: stored.Root, Blake3: make([]byte, state.Blake3Bytes), Checksum: summed.Checksums[0],
		},
		&state.PutObject{Account: "account", Bucket: "bucket", Born: born, Object: classed, Content: stored},
		&state.PutObject{Account: "account", Bucket: "bucket", Born: born, Object: summed, Content: stored},
		&state.CopyObject{Account: "account", Bucket: "bucket", Born: born, Object: wanting, SourceBucket: "bucket", SourceBorn: born, SourceKey: "a/c", SourceID: "v2"},
		&state.CreateUpload{Account: "account", Bucket: "bucket", Born: born, Upload: state.Upload{ID: "classed", Key: "k", Created: 12, StorageClass: "GLACIER"}},
		&state.CreateUpload{Account: "account", Bucket: "bucket", Born: born, Upload: state.Upload{ID: "summed", Key: "k", Created: 12, Checksum: state.Checksum{Algorithm: "XXHASH64"}}},
		&state.PutPart{Account: "account", Bucket: "bucket", Born: born, Key: "k", Upload: "summed", Part: part, Content: stored},
		&state.CopyPart{
			Account: "account", Bucket: "bucket", Born: born, Key: "k", Upload: "summed", Part: part,
			SourceBucket: "bucket", SourceBorn: born, SourceKey: "a/c", SourceID: "v2",
		},
		&state.CompleteUpload{Account: "account", Bucket: "bucket", Born: born, Object: classed, Content: stored},
		&state.ByKey{Key: "jti", Change: tags},
		&state.BySession{Session: "session", Change: &state.PutObject{Account: "account", Bucket: "bucket", Born: born, Object: summed, Content: stored}},
	}
}

// admins returns the commands of level 6.
func admins() []state.Command {
	return []state.Command{
		&state.OpenFirstAdmin{Account: state.Account{ID: "admin", Email: "a@c", PasswordHash: "hash", Created: 67}, Allowance: 1 << 40},
		&state.SetAdmin{Account: "account", Admin: true},
		&state.AddApp{App: state.App{Name: "app", Redirects: []string{"myapp://done", "http://127.0.0.1:*/done"}, Scope: []string{state.ScopeRead}, Created: 13}},
		&state.RemoveApp{Name: "other"},
		&state.SignUp{
			Account: state.Account{ID: "ann", Email: "ann@c", Created: 68}, Allowance: 1 << 40,
			Identity: state.Identity{Issuer: "https://id.example", Subject: "7", Account: "ann", Email: "ann@c", Linked: 68}, Link: "invitation", Admin: true,
		},
		&state.LinkIdentity{Identity: state.Identity{Issuer: "https://id.example", Subject: "8", Account: "account", Email: "a@b", Linked: 69}},
		&state.UnlinkIdentity{Account: "account", ID: "identity"},
		&state.AddOneTimeLink{
			Link: state.OneTimeLink{ID: "link", Purpose: state.ForPassword, Account: "account", Proof: state.Hash{7}, Expires: 70}, Over: 300,
		},
		&state.ResetPassword{Link: "link", Account: "account", Hash: "hash"},
		&state.BeginSession{
			Session: state.Session{ID: "s2", Account: "account", Created: 71, Expires: 72, Idle: 3}, Identity: "identity", Link: "link", Over: 300,
		},
		&state.NoteUsage{Day: 20783, Items: []state.AccountRequests{{Account: "account", Count: 300}}},
		&state.CloseOwnAccount{Account: "account"},
	}
}

// audits has the commands of level 7.
func audits() []state.Command {
	by := state.Actor{Kind: state.ActorKey, Account: "account", Email: "a@b", Key: "jti", Session: "session", Addr: "192.0.2.7"}
	return []state.Command{
		&state.Audited{By: by, At: 300, Change: &state.SetQuota{Account: "account", Allowance: 1 << 40}},
		&state.Audited{By: by, At: 300, Change: &state.ByKey{Key: "jti", Change: &state.DeleteBucket{Account: "account", Name: "bucket", Born: 41}}},
		&state.NoteKeyShown{ID: "jti"},
		&state.NoteRefusals{Items: []state.Refusal{
			{Action: state.ActionSessionCreate, At: 300, Addr: "2001:db8::", Account: "account", Count: 9}, {Action: state.ActionMemberJoin, At: 301, Detail: "wrong secret", Count: 1},
		}},
		&state.PruneAudit{Before: 300},
		&state.RemoveOneTimeLink{ID: "link"},
		&state.DecideAdmin{Account: "account", Admin: true, BySetting: true},
	}
}

// conditions are changes with conditions that came with level 5, each field in one at least.
func conditions() (cmds []state.Command) {
	all := []state.Condition{
		{NoneMatch: []string{"etag", "other"}},
		{Absent: true, Match: []string{"*"}, NoneMatch: []string{"etag"}, Size: 300, Sized: true, Modified: 1_700_000_000, AbsentOK: true},
		{Match: []string{"etag"}, AbsentOK: true},
		{Sized: true},
		{Modified: -1},
	}
	for _, cmd := range namings() {
		c := all[len(cmds)%len(all)]
		switch cmd := cmd.(type) {
		case *state.PutObject:
			cmd.If = c
		case *state.CopyObject:
			cmd.If = c
		case *state.DeleteObjects:
			cmd.If = c
		case *state.CompleteUpload:
			cmd.If = c
		default:
			continue
		}
		cmds = append(cmds, cmd)
	}
	return append(cmds, &state.ByKey{Key: "jti", Change: cmds[0]}, &state.BySession{Session: "session", Change: cmds[1]})
}
