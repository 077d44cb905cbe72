package state

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	mh "github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// rootAt returns a root of its own for each number.
func rootAt(b *testing.B, n int) RootKey {
	b.Helper()
	sum, err := mh.Sum(binary.BigEndian.AppendUint64(nil, uint64(n)), mh.SHA2_256, -1)
	if err != nil {
		b.Fatal(err)
	}
	return RootOf(cid.NewCidV1(cid.Raw, sum))
}

func benchObject(b *testing.B, n int, k string) Object {
	b.Helper()
	return Object{
		ID: VersionID(fmt.Sprintf("%036d", n)), Key: k, Root: rootAt(b, n), Size: 1 << 20, Created: 1_700_000_000_000,
		ETag: "d41d8cd98f00b204e9800998ecf8427e", Headers: map[string]string{"Content-Type": "application/octet-stream"},
		Meta: map[string]string{"mtime": "1700000000.5"},
	}
}

func benchContent(k RootKey) Content {
	return Content{
		Root: k, Bytes: 1<<20 + 100, Blocks: 5, Nodes: []NodeID{"n1", "n2", "n3"}, Held: []Holding{{"n1", 0}, {"n2", 0}, {"n3", 0}},
	}
}

// shelf raises the level and makes a bucket.
func (d *onDisk) shelf(b *testing.B) Bucket {
	b.Helper()
	d.apply(b, &RaiseLevel{FeatureLevel: NewestFeatureLevel}, &CreateBucket{Bucket: Bucket{Account: alice, Name: "bucket", Created: 1}})
	view := d.store.View()
	defer view.Close()
	bucket, err := NewView(view, 0).Bucket(alice, "bucket")
	if err != nil {
		b.Fatal(err)
	}
	return bucket
}

func BenchmarkApplyPutObject(b *testing.B) {
	for _, batch := range []int{1, 256} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			d := newOnDisk(b)
			bucket := d.shelf(b)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				cmds := make([]Command, batch)
				for i := range cmds {
					o := benchObject(b, n, fmt.Sprintf("folder/%09d", n))
					cmds[i] = &PutObject{Account: alice, Bucket: bucket.Name, Born: bucket.Born, Object: o, Content: benchContent(o.Root)}
					n++
				}
				d.apply(b, cmds...)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "puts/s")
		})
	}
}

// A put over a key that is there, 256 in an entry: the old version goes, or stays.
func BenchmarkApplyPutOver(b *testing.B) {
	for name, to := range map[string]Versioning{"without versions": Unversioned, "versions kept": Versioned, "versions suspended": Suspended} {
		b.Run(name, func(b *testing.B) {
			d := newOnDisk(b)
			bucket := d.shelf(b)
			if to != Unversioned {
				d.apply(b, &SetVersioning{Account: alice, Bucket: bucket.Name, Born: bucket.Born, Versioning: to})
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				cmds := make([]Command, 256)
				for i := range cmds {
					o := benchObject(b, n, fmt.Sprintf("folder/%09d", n%4096))
					cmds[i] = &PutObject{Account: alice, Bucket: bucket.Name, Born: bucket.Born, Object: o, Content: benchContent(o.Root)}
					n++
				}
				d.apply(b, cmds...)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "puts/s")
		})
	}
}

// The largest change of versions: each of 1,000 keys loses the current one, and an
// old one becomes current.
func BenchmarkApplyDelete1000Versions(b *testing.B) {
	d := newOnDisk(b)
	bucket := d.shelf(b)
	d.apply(b, &SetVersioning{Account: alice, Bucket: bucket.Name, Born: bucket.Born, Versioning: Versioned})
	b.ReportAllocs()
	for n := 0; b.Loop(); {
		b.StopTimer()
		drop := &DeleteObjects{Account: alice, Bucket: bucket.Name, Born: bucket.Born, Marker: "m", Created: 1}
		var puts []Command
		for i := range MaxDeleteKeys {
			k := fmt.Sprintf("folder/%09d", i)
			for range 2 {
				o := benchObject(b, n, k)
				puts = append(puts, &PutObject{Account: alice, Bucket: bucket.Name, Born: bucket.Born, Object: o, Content: benchContent(o.Root)})
				n++
			}
			drop.Keys, drop.IDs = append(drop.Keys, k), append(drop.IDs, VersionID(fmt.Sprintf("%036d", n-1)))
		}
		d.apply(b, puts...)
		b.StartTimer()
		d.apply(b, drop)
	}
}

// The largest upload becomes an object, and the entries after it free its 10,000 parts.
func BenchmarkApplyCompleteOf10000(b *testing.B) {
	for name, allowance := range map[string]uint64{
		"with room": Unlimited,
		"net":       12_000 << 20, // less than object and parts, so that the net change is looked at
	} {
		b.Run(name, func(b *testing.B) { benchComplete(b, allowance) })
	}
}

func benchComplete(b *testing.B, allowance uint64) {
	d := newOnDisk(b)
	bucket := d.shelf(b)
	d.apply(b, &SetQuota{Account: alice, Allowance: 22_000 << 20}) // of the object before and the parts
	b.ReportAllocs()
	var clearing time.Duration
	entries := 0
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		up := UploadID(fmt.Sprint(n))
		d.apply(b, &CreateUpload{Account: alice, Bucket: bucket.Name, Born: bucket.Born, Upload: Upload{ID: up, Key: "k", Created: 1}})
		complete := &CompleteUpload{Account: alice, Bucket: bucket.Name, Born: bucket.Born, Object: benchObject(b, n, "k")}
		complete.Object.Upload, complete.Object.ID = up, VersionOf(up)
		var parts []Command
		var listed []Part
		for i := range MaxPartNumber {
			at := n<<32 + 1<<24 + i
			o := benchObject(b, at, "")
			p := Part{Number: uint16(i + 1), ID: o.ID, Root: o.Root, Size: o.Size, Created: 1, ETag: o.ETag}
			parts = append(parts, &PutPart{
				Account: alice, Bucket: bucket.Name, Born: bucket.Born, Key: "k", Upload: up, Part: p, Content: benchContent(o.Root),
			})
			listed = append(listed, p)
			if len(parts) == 200 {
				d.apply(b, parts...)
				parts = nil
			}
		}
		complete.Parts = ListParts(listed)
		complete.Object.Size, complete.Object.Parts = MaxPartNumber<<20, []PartRun{{1 << 20, MaxPartNumber}}
		complete.Content = benchContent(complete.Object.Root)
		complete.Content.Bytes = MaxPartNumber << 20
		c := codec.Encoder(nil)
		complete.Code(c)
		encoded, err := c.Finish()
		if err != nil {
			b.Fatal(err)
		}
		d.apply(b, &SetQuota{Account: alice, Allowance: allowance})
		b.StartTimer()
		d.apply(b, complete)
		b.StopTimer()
		b.ReportMetric(float64(len(encoded)), "bytes/entry")
		began := time.Now()
		for entries++; d.left(b) != nil; entries++ {
			d.apply(b, &ClearUploads{Items: d.left(b)})
		}
		entries--
		clearing += time.Since(began)
		b.ReportMetric(float64(clearing.Milliseconds())/float64(entries), "ms/clearing-entry")
		d.apply(b, &SetQuota{Account: alice, Allowance: 22_000 << 20})
		b.StartTimer()
	}
}

// left returns the uploads that are still to be cleared.
func (d *onDisk) left(b *testing.B) []UploadRef {
	b.Helper()
	view := d.store.View()
	defer view.Close()
	left, err := NewView(view, 0).Ended(10)
	if err != nil {
		b.Fatal(err)
	}
	return left
}

func BenchmarkListObjectsOf1000000(b *testing.B) {
	d := newOnDisk(b)
	bucket := d.shelf(b)
	const folders, each = 10_000, 100
	o := benchObject(b, 1, "")
	for f := range folders {
		tx := d.store.Begin()
		for i := range each {
			o.Key = fmt.Sprintf("%05d/%03d", f, i)
			if err := put(tx, bucket.objectKey(o.Key), &o); err != nil {
				b.Fatal(err)
			}
		}
		if err := tx.Commit(false); err != nil {
			b.Fatal(err)
		}
	}
	for _, bm := range []struct {
		name string
		q    ObjectsQuery
	}{
		{"1000 keys", ObjectsQuery{Limit: 1000}},
		{"1000 keys from the middle", ObjectsQuery{Limit: 1000, After: "05000/050"}},
		{"1000 prefixes of 100", ObjectsQuery{Limit: 1000, Delimiter: "/"}},
		{"one folder", ObjectsQuery{Limit: 1000, Prefix: "07777/", Delimiter: "/"}},
		{"10 keys", ObjectsQuery{Limit: 10, After: "05000/050"}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				view := d.store.View()
				page, err := NewView(view, 0).Objects(&bucket, bm.q)
				view.Close()
				if err != nil || len(page.Objects)+len(page.Prefixes) == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}
