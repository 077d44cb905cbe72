package state

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
)

// The feature level rises only to what all members understand, never falls, and a node cannot join with or return to
// a release that does not understand it. A level of a later release is ErrTooOld, and a new cluster begins at the level
// of its first node.
func TestTheLevelRisesWhenAllMembersUnderstandIt(t *testing.T) {
	m := found(t)
	level := func() FeatureLevel {
		l, err := m.view().FeatureLevel()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if level() != 0 {
		t.Fatalf("founded by an older release at level %d", level())
	}
	m.must(&RaiseLevel{FeatureLevel: 1})
	m.must(&RaiseLevel{FeatureLevel: 0})
	if level() != 1 || m.fx.FeatureLevel {
		t.Errorf("level %d", level())
	}
	if _, err := m.apply(&JoinNode{Node: Node{ID: "old", Version: "0.0.1"}}); !errors.Is(err, ErrConflict) {
		t.Errorf("a release that is too old joins: %v", err)
	}
	if _, err := m.apply(&UpdateNode{Node{ID: "n1", Version: "0.0.1"}}); !errors.Is(err, ErrConflict) {
		t.Errorf("a member goes back to a release that is too old: %v", err)
	}
	if _, err := m.apply(&RaiseLevel{FeatureLevel: NewestFeatureLevel + 1}); !errors.Is(err, ErrTooOld) {
		t.Errorf("a level of a later release: %v", err)
	}
	m.must(&JoinNode{Node: Node{ID: "n9", FeatureLevel: 1, Store: "s9"}})
	if _, err := m.apply(&RaiseLevel{FeatureLevel: 2}); !errors.Is(err, ErrConflict) || level() != 1 {
		t.Errorf("a member understands level 1 only: level %d, %v", level(), err)
	}
	m.must(&UpdateNode{Node{ID: "n9", FeatureLevel: 2, Store: "s9"}})
	if m.must(&RaiseLevel{FeatureLevel: 2}); level() != 2 {
		t.Errorf("level %d, and all members understand 2", level())
	}
	fresh := &machine{memory: newMemory(), t: t}
	fresh.must(&InitCluster{
		Cluster:  Cluster{ID: "c", Replication: 1, WriteCopies: 1, Operator: alice},
		Node:     Node{ID: "n1", FeatureLevel: 1, Store: "s", Votes: true},
		Operator: Account{ID: alice, Email: "alice@example.org"},
	})
	if l, err := fresh.view().FeatureLevel(); l != 1 || err != nil || !fresh.fx.FeatureLevel {
		t.Errorf("founded at level %d, %v", l, err)
	}
}

// addCheckAndSessions adds a check, a session as earlier feature levels have it, and one that says from
// where it began.
func addCheckAndSessions(add func(name string, code func(*codec.Coder))) {
	check := Check{Index: 9, At: 8, Members: []NodeID{"n1", "n2"}, Reports: []HashReport{{"n2", Hash{1}}}}
	add("check", check.Code)
	signed := Session{ID: "session", Account: "a", Created: 1, Expires: 300, Idle: 2}
	add("session-1", signed.Code)
	from := signed.From("192.0.2.7", "Firefox 140 on Linux")
	add("session-2", from.Code)
}

// Every record below is encoded as the bytes that the golden file has. So a record that has nothing new is written
// as the release before wrote it. Members and objects decode to equal records.
func TestRecordsKeepTheirBytes(t *testing.T) {
	node := Node{ID: "node", Name: "name", Addrs: []string{"/a"}, ClusterAddrs: []string{"/b"}, Version: "v1", Joined: 77}
	leveled := node
	leveled.FeatureLevel, leveled.Store, leveled.Votes = 1, "store", true
	quarantine := Quarantine{Node: "n2", Check: 9, Hash: Hash{1}, Majority: Hash{2}, Store: "store", Times: 3}
	var lines []string
	add := func(name string, code func(*codec.Coder)) {
		c := codec.Encoder(nil)
		code(c)
		b, err := c.Finish()
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %x", name, b))
	}
	add("node-1", node.Code)
	add("node-2", leveled.Code)
	addCheckAndSessions(add)
	add("quota", func(c *codec.Coder) {
		(&Quota{Allowance: 1, Credits: 2, Stored: 1 << 40, Coming: 4, Postings: 5, Records: 300, Retained: 6}).Code(c)
	})
	add("charge", func(c *codec.Coder) { (&charge{Bytes: 1 << 40, Stored: true}).Code(c) })
	add("guarded", func(c *codec.Coder) { (&retained{Account: "a", Bytes: 300}).Code(c) })
	add("posting", func(c *codec.Coder) { (&Posting{ID: "g", Account: "a", Credits: 7, Made: 8}).Code(c) })
	add("quarantine", quarantine.Code)
	root := Root{
		Key: "root", Born: 1, Refs: 2, Retainers: 3, Size: 4, Blocks: 5, Status: Pinned, Detail: "d",
		Copies: []Copy{{"n1", Held, ""}, {"n2", Fetching, "why"}},
	}
	linked := root
	linked.Links, linked.Public = 300, 299
	add("root-1", root.Code)
	add("root-2", linked.Code)
	late := linked
	late.UnderReplicated = true
	add("root-3", late.Code)
	repinned := late
	repinned.Repinned = 4000
	add("root-4", repinned.Code)
	sums := []Checksum{{"CRC32", []byte{1, 2, 3, 4}, true}}
	tags := []Tag{{"b", "1"}, {"a", ""}}
	blake3 := append(make([]byte, Blake3Bytes-1), 7)
	object := Object{
		ID: "id", Key: "a/\x00\xff", Root: "root", Size: 7, Created: 8, ETag: "etag", Headers: map[string]string{"Content-Type": "t", "A": "b"},
		Meta: map[string]string{"m": "ä"}, Tags: tags, Checksums: sums, Parts: []PartRun{{5, 1}, {1, 2}}, Upload: "up", Listed: Hash{5},
		Blake3: blake3,
	}
	add("bucket", (&Bucket{Account: "a", Name: "bucket", Born: 300, Created: 5, Versioning: Suspended, Public: true, Turning: true}).Code)
	add("cors", (&Cors{Rules: []CorsRule{{
		ID: "rule", Origins: []string{"https://*.example.org"}, Methods: []string{"GET"}, Headers: []string{"*"}, Expose: []string{"ETag"}, MaxAge: -1,
	}}}).Code)
	add("object", object.Code)
	classed, wanting := object, object
	classed.StorageClass, classed.Checksums = "STANDARD_IA", []Checksum{{"SHA512", make([]byte, MaxSumBytes), false}}
	wanting.Checksums, wanting.Wanted = nil, "XXHASH3"
	add("object-2 class", classed.Code)
	add("object-2 wanted", wanting.Code)
	add("bucket tags", (&BucketTags{Tags: tags}).Code)
	add("marker", (&Object{ID: "id", Key: "a", Created: 8, Versioned: true, Marker: true}).Code)
	add("upload", (&Upload{
		ID: "up", Key: "k", Created: 9, Since: 10, Headers: map[string]string{"Expires": "0"}, Meta: map[string]string{"m": "n"},
		Tags: tags, Checksum: Checksum{"SHA256", nil, true}, Nodes: []NodeID{"n1"},
	}).Code)
	add("upload-2", (&Upload{ID: "up", Key: "k", Created: 9, Checksum: Checksum{"MD5", nil, true}, StorageClass: "GLACIER"}).Code)
	add("part", (&Part{
		Number: 10_000, ID: "id", Root: "root", Size: 7, Created: 8, ETag: "etag", Checksums: sums,
		Blake3: blake3, At: 300, Trees: append(blake3, blake3...),
	}).Code)
	add("part sums", (&PartSums{"CRC32", []byte{1, 2, 3, 4, 5, 6, 7, 8}}).Code)
	add("begun", (&begun{Bucket: "bucket", Key: "k"}).Code)
	add("ended", (&ended{After: 1024}).Code)
	add("identity", (&Identity{Issuer: "https://id.example", Subject: "7", Account: "a", Email: "a@b", Linked: 300}).Code)
	add("one-time link", (&OneTimeLink{ID: "link", Purpose: ForSession, Account: "a", Proof: Hash{1}, Expires: 300}).Code)
	add("usage", (&Usage{Day: 20783, Stored: 1 << 40, Requests: 300}).Code)
	add("audit row", (&AuditRow{
		Seq: 300, At: 301, Actor: Actor{Kind: ActorSession, Account: "a", Email: "a@b", Key: "k", Session: "s", Addr: "192.0.2.7"},
		Action: ActionUserQuota, Target: "b", Detail: "d", Refused: true, Count: 302,
	}).Code)
	add("audit head", (&auditHead{First: 2, Next: 301, Anchor: AuditHash{1}, Head: AuditHash{2}, Last: 303, Hour: 4, SignIns: 5, Joins: 6, Rest: 7}).Code)
	add("posting-2", (&Posting{
		ID: "g", Account: "a", Kind: Correction, Credits: 7, Takes: true, Corrects: "f", Note: "ä", Made: 8,
		By: Actor{Kind: ActorSession, Account: "o", Email: "o@b"}, Seq: 300, Balance: 301,
	}).Code)
	add("metering", (&metering{Charged: 300, Every: 301, Rate: 302, After: "a"}).Code)
	pinRecords(add)
	addPayments(add)
	goldentest.File(t, filepath.Join("testdata", "records.txt"), []byte(strings.Join(lines, "\n")+"\n"))
	comeBack(t, object, classed, wanting)
	for _, n := range []Node{node, leveled} {
		c := codec.Encoder(nil)
		n.Code(c)
		b, _ := c.Finish()
		back, err := decode[Node](b)
		if err != nil || fmt.Sprint(*back) != fmt.Sprint(n) {
			t.Errorf("%+v came back as %+v, %v", n, back, err)
		}
	}
}

// pinRecords adds the forms of the records of pins.
func pinRecords(add func(name string, code func(*codec.Coder))) {
	add("packed names", newChunk(300, []pinName{{70_000, []byte("Näme")}, {1000, []byte("b")}}).Code)
	add("packing", (&packingNames{At: "Ga", Pins: 300}).Code)
	pin := Pin{
		ID: "p", Account: "a", Created: 300, Status: Pinned, CID: contents[0], Given: GivenName, Name: "n", Origins: []string{"o"}, Meta: map[string]string{"m": "ä"},
	}
	ending, bounded := pin, pin
	ending.Until, bounded.MaxBytes = 301, 302
	add("pin-1", pin.Code)
	add("pin-2 end", ending.Code)
	add("pin-2 bound", bounded.Code)
	add("once-1", (&once{Pin: "p", Created: 300, Asked: Hash{1}, At: 301}).Code)
	add("once-2", (&once{Pin: "p", Created: 300, Asked: Hash{1}, At: 301, Until: 302}).Code)
}

// addPayments adds the records of payments.
func addPayments(add func(string, func(*codec.Coder))) {
	add("payment", (&Payment{
		ID: testPayment("0x1").ID, State: PaymentRefundable, Kind: PaysObject, Amount: "1000", PayTo: "0xto", Request: "r", Node: "n", Object: "b/k", Pin: "p",
		Bytes: 300, Seconds: 301, Transaction: "0xt", Reason: "why", Reserved: 302, Renewed: 303, Settled: 304, Until: 305,
	}).Code)
	add("paid total", (&paidTotal{Count: 300, Amount: "301"}).Code)
	add("paid object", (&PaidObject{Object: "b/k", Payer: "0xp", Until: 300, Version: "v", Ended: true}).Code)
}

// comeBack checks that objects are read as they were written, also by lists.
func comeBack(t *testing.T, objects ...Object) {
	t.Helper()
	for _, o := range objects {
		c := codec.Encoder(nil)
		o.Code(c)
		b, _ := c.Finish()
		back, err := decode[Object](b)
		if err != nil || !reflect.DeepEqual(*back, o) {
			t.Errorf("%+v came back as %+v, %v", o, back, err)
		}
		listed, err := decodeListed(b)
		if err != nil || listed.StorageClass != o.StorageClass || listed.Key != o.Key || listed.Wanted != "" {
			t.Errorf("%+v is listed as %+v, %v", o, listed, err)
		}
	}
}
