package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// anyNaming draws a command of level 3 out of a small world. What it takes from the
// state, as a proposer does, is right most of the time.
func anyNaming(t *rapid.T, m *machine) Command {
	d := &drawing{T: t, m: m, account: rapid.SampledFrom([]AccountID{alice, bob, bob, bob}).Draw(t, "account")}
	d.name, d.b = d.bucket("bucket")
	switch rapid.IntRange(0, 36).Draw(t, "naming") {
	case 30, 31:
		return d.hash()
	case 34, 35:
		return d.sums()
	case 36:
		return &SetBucketTags{Account: d.account, Bucket: d.name, Born: d.b.Born, Tags: BucketTags{
			Tags: rapid.SliceOfN(rapid.SampledFrom([]Tag{{"a", "1"}, {"b", ""}}), 0, 2).Draw(t, "tags"),
		}}
	case 32:
		return &SetBucketCors{Account: d.account, Bucket: d.name, Born: d.b.Born, Cors: d.cors()}
	case 23, 24:
		return &SetVersioning{
			Account: d.account, Bucket: d.name, Born: d.b.Born,
			Versioning: rapid.SampledFrom([]Versioning{Unversioned, Versioned, Versioned, Suspended, Suspended}).Draw(t, "versioning"),
		}
	case 27, 28:
		return &SetBucketPublic{Account: d.account, Name: d.name, Born: d.b.Born, Public: rapid.Bool().Draw(t, "public")}
	case 29:
		return &TurnBuckets{Items: []BucketName{{d.account, d.name}, {bob, "two"}}}
	case 22:
		return &SetQuota{Account: bob, Allowance: rapid.SampledFrom([]uint64{30, 60, 90, 150, Unlimited}).Draw(t, "allowance")}
	case 0, 1:
		return &CreateBucket{Bucket: Bucket{Account: d.account, Name: d.name, Created: 1, Public: rapid.Bool().Draw(t, "public")}}
	case 2:
		return &DeleteBucket{Account: d.account, Name: d.name, Born: d.b.Born}
	case 3, 4, 5, 6, 7:
		o := d.object()
		return &PutObject{Account: d.account, Bucket: d.name, Born: d.b.Born, Object: o, Content: d.content(o.Root), If: d.condition()}
	case 8, 9:
		bucket, from := d.bucket("source")
		o, source := d.object(), d.source(&from)
		o.Root, o.Size = source.Root, source.Size
		return &CopyObject{
			Account: d.account, Bucket: d.name, Born: d.b.Born, Object: o, If: d.condition(),
			SourceBucket: bucket, SourceBorn: from.Born, SourceKey: source.Key, SourceID: source.ID,
			KeepTags: rapid.Bool().Draw(t, "keep tags"),
		}
	case 10, 25, 26:
		return d.drop()
	case 11, 33:
		o := d.source(&d.b)
		return &SetObjectTags{
			Account: d.account, Bucket: d.name, Born: d.b.Born, Key: o.Key,
			ID:   rapid.SampledFrom([]VersionID{"", NullVersion, o.ID}).Draw(t, "of"),
			Tags: rapid.SliceOfN(rapid.SampledFrom([]Tag{{"a", "1"}, {"b", ""}, {"a", strings.Repeat("\U0001F4CC", MaxTagValueRunes)}}), 0, 2).Draw(t, "tags"),
		}
	case 12, 13:
		u := Upload{ID: d.upload(), Key: d.key(), Created: Millis(rapid.IntRange(1, 3).Draw(t, "begun"))}
		u.Meta = anyMeta(t)
		u.Since = Millis(rapid.IntRange(0, 3).Draw(t, "since"))
		return &CreateUpload{Account: d.account, Bucket: d.name, Born: d.b.Born, Upload: u}
	case 14:
		u := d.open()
		if rapid.Bool().Draw(t, "date it") {
			return &DateUpload{Account: d.account, Bucket: d.name, Born: d.b.Born, Key: u.Key, ID: u.ID, Since: Millis(rapid.IntRange(1, 3).Draw(t, "date"))}
		}
		return &AbortUpload{Account: d.account, Bucket: d.name, Born: d.b.Born, Key: u.Key, ID: u.ID}
	case 15, 16, 17:
		u, p := d.open(), d.part()
		return &PutPart{Account: d.account, Bucket: d.name, Born: d.b.Born, Key: u.Key, Upload: u.ID, Part: p, Content: d.content(p.Root)}
	case 18:
		bucket, from := d.bucket("source")
		u, p, source := d.open(), d.part(), d.source(&from)
		p.Root, p.Size = source.Root, source.Size
		return &CopyPart{
			Account: d.account, Bucket: d.name, Born: d.b.Born, Key: u.Key, Upload: u.ID, Part: p,
			SourceBucket: bucket, SourceBorn: from.Born, SourceKey: source.Key, SourceID: source.ID,
		}
	case 19, 20:
		return d.complete()
	default:
		if rapid.Bool().Draw(t, "clear uploads") {
			left, err := m.view().Ended(2)
			if err != nil {
				t.Fatal(err)
			}
			return &ClearUploads{Items: append(left, UploadRef{d.account, d.b.Born, d.upload()})}
		}
		if rapid.Bool().Draw(t, "clear") {
			return &ClearBuckets{Items: []BucketRef{{d.account, d.b.Born}, {d.account, Incarnation(rapid.IntRange(0, 60).Draw(t, "born"))}}}
		}
		return &Fence{
			Node:  rapid.SampledFrom([]NodeID{"n1", "n2", "n3", "n4"}).Draw(t, "node"),
			Epoch: uint64(rapid.IntRange(0, 2).Draw(t, "epoch")),
		}
	}
}

var worldKeys = []string{"a", "a/", "a/b", "a\x00"}

// drawing draws what commands are made of.
type drawing struct {
	*rapid.T
	m       *machine
	account AccountID
	name    string
	b       Bucket
}

func (d *drawing) bucket(label string) (string, Bucket) {
	name := rapid.SampledFrom([]string{"one", "two"}).Draw(d.T, label)
	b, err := d.m.view().Bucket(d.account, name)
	if err != nil && !errors.Is(err, ErrNoBucket) {
		d.Fatal(err)
	}
	if rapid.IntRange(0, 9).Draw(d.T, "another time") == 0 {
		b.Born++
	}
	b.Account = d.account
	return name, b
}

func (d *drawing) key() string { return rapid.SampledFrom(worldKeys).Draw(d.T, "key") }

func (d *drawing) version() VersionID {
	return VersionID(fmt.Sprintf("v%d", rapid.IntRange(0, 15).Draw(d.T, "version")))
}

func (d *drawing) upload() UploadID {
	return UploadID(fmt.Sprintf("u%d", rapid.IntRange(0, 2).Draw(d.T, "upload")))
}

func (d *drawing) root() RootKey { return rootOf(d.m.t, rapid.SampledFrom(contents).Draw(d.T, "cid")) }

func (d *drawing) object() Object {
	o := Object{
		ID: d.version(), Key: d.key(), Root: d.root(), Created: Millis(rapid.IntRange(1, 9).Draw(d.T, "created")),
		ETag: rapid.SampledFrom([]string{"e1", "e2"}).Draw(d.T, "etag"),
	}
	o.Size, o.Meta = sizeOf(o.Root)-1, anyMeta(d.T)
	if rapid.Bool().Draw(d.T, "hashed") {
		o.Blake3 = make([]byte, Blake3Bytes)
	}
	if rapid.IntRange(0, 3).Draw(d.T, "wanted") == 0 {
		o.Wanted = "CRC32"
	}
	return o
}

func (d *drawing) part() Part {
	p := Part{Number: uint16(rapid.IntRange(1, 3).Draw(d.T, "number")), ID: d.version(), Root: d.root(), Created: 1, ETag: "e"}
	p.Size = sizeOf(p.Root) - 1
	if rapid.IntRange(0, 3).Draw(d.T, "a checksum") > 0 {
		p.Checksums = []Checksum{{Algorithm: "CRC32", Value: []byte(p.ID + "....")[:4]}}
	}
	return p
}

func (d *drawing) content(k RootKey) Content {
	nodes := []NodeID{"n1", "n2", "n3", "n4", "n5"}
	c := Content{Root: k, Bytes: sizeOf(k), Blocks: 1, Nodes: rapid.SliceOfDistinct(rapid.SampledFrom(nodes), rapid.ID).Draw(d.T, "nodes")}
	for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom(nodes), 1, 4, rapid.ID).Draw(d.T, "held") {
		fence, err := d.m.view().FenceOf(n)
		if err != nil {
			d.Fatal(err)
		}
		if rapid.IntRange(0, 4).Draw(d.T, "late") == 0 {
			fence = uint64(rapid.IntRange(0, 1).Draw(d.T, "epoch"))
		}
		c.Held = append(c.Held, Holding{Node: n, Epoch: fence})
	}
	return c
}

func (d *drawing) condition() Condition {
	return rapid.SampledFrom([]Condition{
		{},
		{},
		{},
		{},
		{Absent: true},
		{Match: []string{"*"}},
		{Match: []string{"e0", "e1"}},
		{NoneMatch: []string{"e0"}},
		{Match: []string{"e1"}, AbsentOK: true},
		{Size: 3, Sized: true, AbsentOK: true},
	}).Draw(d.T, "if")
}

// hash is that of a version that does not know it, most of the time.
func (d *drawing) hash() Command {
	page, _, err := d.m.view().Unhashed(nil, 100)
	if err != nil {
		d.Fatal(err)
	}
	cmd := &SetObjectHash{Account: d.account, Born: d.b.Born, Key: d.key(), ID: d.version(), Root: d.root(), Blake3: make([]byte, Blake3Bytes)}
	if len(page) > 0 {
		u := rapid.SampledFrom(page).Draw(d.T, "unhashed")
		cmd.Account, cmd.Born, cmd.Key, cmd.ID = u.Account, u.Born, u.Object.Key, u.Object.ID
		if rapid.IntRange(0, 9).Draw(d.T, "other content") > 0 {
			cmd.Root = u.Object.Root
		}
	}
	return cmd
}

// sums returns what hash is, for a version that wants them.
func (d *drawing) sums() Command {
	told, ok := d.hash().(*SetObjectHash)
	if !ok {
		d.Fatal("no hash")
	}
	return &SetObjectSums{
		Account: told.Account, Born: told.Born, Key: told.Key, ID: told.ID, Root: told.Root, Blake3: told.Blake3,
		Checksum: Checksum{Algorithm: rapid.SampledFrom([]string{"CRC32", "CRC32", "CRC32", "CRC32C"}).Draw(d.T, "algorithm"), Value: make([]byte, 4)},
	}
}

func (d *drawing) cors() Cors {
	rule := CorsRule{Origins: []string{"*"}, Methods: []string{"GET"}, MaxAge: -1}
	return Cors{Rules: rapid.SliceOfN(rapid.SampledFrom([]CorsRule{rule, rule, rule, {ID: "no origin"}}), 0, 2).Draw(d.T, "rules")}
}

// source returns a version of a bucket, or one that is not there.
func (d *drawing) source(b *Bucket) Object {
	page, err := d.m.view().Versions(b, VersionsQuery{Prefix: d.key(), Limit: 10})
	if err != nil {
		d.Fatal(err)
	}
	if len(page.Versions) == 0 || rapid.IntRange(0, 9).Draw(d.T, "no version") == 0 {
		return d.object()
	}
	return rapid.SampledFrom(page.Versions).Draw(d.T, "version of")
}

// drop returns a deletion of keys, of versions that are there, or of both.
func (d *drawing) drop() Command {
	cmd := &DeleteObjects{
		Account: d.account, Bucket: d.name, Born: d.b.Born, Marker: d.version(), Created: Millis(rapid.IntRange(1, 9).Draw(d.T, "created")), If: d.condition(),
	}
	named := rapid.Bool().Draw(d.T, "named")
	for range rapid.IntRange(1, 3).Draw(d.T, "keys") {
		id, k := VersionID(""), d.key()
		if named {
			o := d.source(&d.b)
			k, id = o.Key, rapid.SampledFrom([]VersionID{o.ID, o.ID, o.ID, NullVersion, ""}).Draw(d.T, "id")
		}
		cmd.Keys = append(cmd.Keys, k)
		if named {
			cmd.IDs = append(cmd.IDs, id)
		}
	}
	return cmd
}

// open returns an upload of the bucket, or one that is not there.
func (d *drawing) open() Upload {
	page, err := d.m.view().Uploads(&d.b, UploadsQuery{Limit: 10})
	if err != nil {
		d.Fatal(err)
	}
	if len(page.Uploads) == 0 || rapid.IntRange(0, 9).Draw(d.T, "no upload") == 0 {
		return Upload{ID: d.upload(), Key: d.key()}
	}
	return rapid.SampledFrom(page.Uploads).Draw(d.T, "open")
}

func (d *drawing) complete() Command {
	u, o := d.open(), d.object()
	o.ID, o.Key, o.Upload, o.Size = VersionOf(u.ID), u.Key, u.ID, 0
	cmd := &CompleteUpload{Account: d.account, Bucket: d.name, Born: d.b.Born, If: d.condition()}
	parts, _, err := d.m.view().Parts(&d.b, u.ID, 0, 10)
	if err != nil {
		d.Fatal(err)
	}
	var listed []Part
	for _, p := range parts {
		if rapid.IntRange(0, 3).Draw(d.T, "left out") == 0 {
			continue
		}
		if rapid.IntRange(0, 9).Draw(d.T, "another part") == 0 {
			p.ID = "other"
		}
		listed = append(listed, p)
		o.Size += p.Size
		if n := len(o.Parts); n > 0 && o.Parts[n-1].Size == p.Size {
			o.Parts[n-1].Count++
		} else {
			o.Parts = append(o.Parts, PartRun{p.Size, 1})
		}
	}
	if rapid.Bool().Draw(d.T, "a checksum of all") {
		o.Checksums = []Checksum{{Algorithm: "CRC32", Value: []byte("....")}}
	}
	if rapid.IntRange(0, 9).Draw(d.T, "another order") == 0 {
		slices.Reverse(listed)
	}
	if rapid.IntRange(0, 9).Draw(d.T, "one that is not there") == 0 {
		listed = append(listed, Part{Number: uint16(rapid.IntRange(4, 20).Draw(d.T, "its number")), ID: "more"})
	}
	o.Listed = HashList(listed)
	cmd.Object, cmd.Content, cmd.Parts = o, d.content(o.Root), ListParts(listed)
	return cmd
}
