package state

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// heavy is metadata that weighs so much, with the key or name of one byte that is beside it.
func heavy(weight int) map[string]string {
	return map[string]string{"m": strings.Repeat("x", FreeMeta+weight-2)}
}

// weighs says what bob's records weigh, and compares it with all of them.
func (m *machine) weighs(what string, want uint64) {
	m.t.Helper()
	m.check()
	if q := m.quota(bob); q.Records != want {
		m.t.Errorf("%s: bob's records weigh %d bytes, want %d", what, q.Records, want)
	}
}

// heavyPin returns a pin of bob's that weighs so much.
func heavyPin(id RequestID, content string, weight int) *CreatePin {
	c := create(bob, id, content)
	c.Pin.Name, c.Pin.Meta = "n", heavy(weight)
	return c
}

// A record weighs the bytes of its texts beyond FreeMeta, and a delete marker weighs nothing. The list of an
// object's parts weighs what it has beyond FreeMeta by itself.
func TestWhatRecordsWeigh(t *testing.T) {
	long := strings.Repeat("x", FreeMeta)
	for _, tc := range []struct {
		name string
		got  uint64
		want uint64
	}{
		{"a pin without anything", (&Pin{CID: long, Detail: long}).weight(), 0},
		{"a pin of the free part", (&Pin{Name: "n", Meta: heavy(0)}).weight(), 0},
		{"a pin of a byte more", (&Pin{Name: "n", Meta: heavy(1)}).weight(), 1},
		{"the origins of a pin", (&Pin{Origins: []string{long, "ab"}}).weight(), 2},
		{"the largest pin", (&Pin{Meta: map[string]string{"": strings.Repeat("x", MaxMetaBytes)}}).weight(), 63 << 10},
		{"a delete marker", (&Object{Key: strings.Repeat("k", MaxKeyBytes), Marker: true}).weight(), 0},
		{"an object of all texts", (&Object{
			Key: long, ETag: long, Headers: map[string]string{"a": "bc"}, Meta: map[string]string{"d": "e"}, Tags: []Tag{{"f", "ghi"}},
		}).weight(), 9},
		{"an object of 129 runs of parts", (&Object{Parts: make([]PartRun, 129)}).weight(), 8},
		{"an upload", (&Upload{Key: long, Headers: map[string]string{"a": "bc"}, Meta: map[string]string{"d": "e"}, Tags: []Tag{{"f", "ghi"}}}).weight(), 9},
	} {
		if tc.got != tc.want {
			t.Errorf("%s weighs %d bytes, want %d", tc.name, tc.got, tc.want)
		}
	}
}

// A pin weighs on its account's allowance from its creation to its deletion, also after it has failed.
func TestPinsWeighFromTheFirstToTheLast(t *testing.T) {
	m := rich(t, 100)
	m.must(heavyPin("p1", contents[1], 60))
	m.weighs("one pin", 60)
	m.refused(heavyPin("p2", contents[1], 41), ErrQuota)
	m.refused(heavyPin("p2", contents[1], 40), ErrQuota) // its content is something
	m.hold(rootOf(t, contents[1]))
	if q := m.quota(bob); q.Used() != 70 {
		t.Errorf("with its content: %+v", q)
	}
	m.must(heavyPin("p2", contents[1], 30)) // the content is charged already
	m.weighs("two pins", 90)
	m.must(create(bob, "p3", contents[1])) // and this one weighs nothing
	for _, id := range []RequestID{"p3", "p1"} {
		m.must(&DeletePin{Account: bob, ID: id})
	}
	m.weighs("one pin is left", 30)
	m.must(heavyPin("p4", contents[2], 50))
	m.giveUp(rootOf(t, contents[2]), "nobody has it")
	m.weighs("a pin that failed weighs as before", 80)
	m.must(&DeletePin{Account: bob, ID: "p4"})
	m.must(&DeletePin{Account: bob, ID: "p2"})
	if q := m.quota(bob); q.Used() != 0 {
		t.Errorf("without pins: %+v", q)
	}
}

// A replacement has the room of the old pin's metadata and content for its own metadata and content, and no more.
func TestReplacementsAreJudgedWithTheirRecords(t *testing.T) {
	by := func(old, id RequestID, content string, weight int) *ReplacePin {
		return &ReplacePin{Old: old, Pin: heavyPin(id, content, weight).Pin, Nodes: []NodeID{"n1", "n2", "n3"}}
	}
	m := rich(t, 100)
	m.must(heavyPin("p1", contents[1], 60))
	m.must(&SetQuota{Account: bob, Allowance: 5})
	m.refused(by("p1", "p2", contents[1], 61), ErrQuota)
	m.must(by("p1", "p2", contents[1], 60)) // nothing of it has come, and it is the same content
	m.weighs("as much in its place", 60)
	m.hold(rootOf(t, contents[1]))
	if got := m.status(bob, "p2"); got != "failed" {
		t.Errorf("content for which there is no room is %s", got)
	}

	m = rich(t, 100)
	m.must(heavyPin("p1", contents[1], 60))
	m.hold(rootOf(t, contents[1]))
	m.must(&SetQuota{Account: bob, Allowance: 5})
	m.refused(by("p1", "p2", contents[2], 70), ErrQuota)    // and content is something
	m.must(by("p1", "p2", contents[2], 65))                 // 5 bytes are left for the content
	m.refused(heavyPin("beside", contents[2], 1), ErrQuota) // which nothing else gets
	if q := m.quota(bob); q.Records != 65 || q.Coming != 5 {
		t.Errorf("while its content comes: %+v", q)
	}
	m.must(by("p2", "p3", contents[3], 20)) // now 50
	m.hold(rootOf(t, contents[3]))
	m.check()
	if q := m.quota(bob); q.Records != 20 || q.Stored != 10 || m.status(bob, "p3") != "pinned" {
		t.Errorf("10 bytes in the place of 45: %+v", q)
	}
	m.must(by("p3", "p4", contents[3], 20)) // above the allowance still
	m.must(&DeletePin{Account: bob, ID: "p4"})
	if q := m.quota(bob); q.Used() != 0 {
		t.Errorf("without pins: %+v", q)
	}
}

// heavyPut returns a put of an object of 10 bytes whose record weighs so much.
func (s *shelf) heavyPut(k string, id VersionID, cid string, weight int) *PutObject {
	s.t.Helper()
	put := s.putOf(k, id, cid)
	put.Object.Meta = heavy(weight)
	return put
}

// A version weighs until it is removed for good, whether it is current, old or under a delete marker.
func TestVersionsWeighWhereverTheyAre(t *testing.T) {
	s := shelved(t, 100)
	s.must(s.heavyPut("k", "v1", contents[1], 80))
	s.weighs("an object", 80)
	s.refused(s.heavyPut("l", "v2", contents[1], 12), ErrQuota) // judged are the 9 bytes of its content
	s.must(s.heavyPut("l", "v2", contents[1], 10))
	s.must(&SetQuota{Account: bob, Allowance: 7})
	s.refused(s.heavyPut("k", "v3", contents[1], 81), ErrQuota)
	s.must(s.heavyPut("k", "v3", contents[2], 70)) // its content is new, and as much is freed
	s.weighs("an object in the place of another", 80)
	s.must(s.heavyPut("k", "v4", contents[1], 80))
	s.weighs("less content and more metadata", 90)

	s.must(&SetQuota{Account: bob, Allowance: Unlimited})
	s.versioning(Versioned)
	s.must(s.heavyPut("k", "v5", contents[1], 5))
	s.weighs("the old version stays", 95)
	s.must(&SetQuota{Account: bob, Allowance: 7})
	s.drop("m1", "k", "l")
	s.weighs("under a delete marker", 95)
	s.drop("m2", "k m1")
	s.weighs("and current again", 95)
	s.drop("m3", "k v4", "k v5", "l v2")
	s.weighs("versions are removed for good", 0)
	if q := s.quota(bob); q.Used() != 0 {
		t.Errorf("with nothing left: %+v", q)
	}
}

// The tags of a version weigh, also of an old one, and are rejected if they bring the account above its allowance.
func TestTagsWeigh(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("of an old version %v", old), func(t *testing.T) {
			s := shelved(t, 100)
			s.versioning(Versioned)
			s.must(s.heavyPut("k", "v1", contents[1], 0))
			if old {
				s.must(s.putOf("k", "v2", contents[1]))
			}
			tag := func(bytes int) *SetObjectTags {
				return &SetObjectTags{Account: bob, Bucket: "bucket", Born: s.b.Born, Key: "k", ID: "v1", Tags: []Tag{{"t", strings.Repeat("x", bytes-1)}}}
			}
			s.refused(tag(91), ErrQuota)
			s.must(tag(90))
			s.weighs("tags", 90)
			s.must(&CopyObject{
				Account: bob, Bucket: "bucket", Born: s.b.Born, KeepTags: true, SourceBucket: "bucket", SourceBorn: s.b.Born, SourceKey: "k", SourceID: "v1",
				Object: s.putOf("copy", "v3", contents[1]).Object,
			})
			s.weighs("a copy without metadata has them for nothing", 90)
			s.must(&SetQuota{Account: bob, Allowance: 7})
			s.refused(tag(91), ErrQuota)
			s.must(tag(90))
			s.must(tag(30))
			s.weighs("fewer", 30)
			s.must(tag(1).without())
			s.weighs("none", 0)
		})
	}
}

func (v *SetObjectTags) without() *SetObjectTags {
	v.Tags = nil
	return v
}

// An upload weighs until it is aborted, goes with its bucket, or becomes an object, which weighs instead.
func TestUploadsWeighUntilTheyAreObjects(t *testing.T) {
	s := shelved(t, 100)
	begin := func(id UploadID, weight int) *CreateUpload {
		c := s.begin("k", id)
		c.Upload.Meta = heavy(weight)
		return c
	}
	s.refused(begin("up", 101), ErrQuota)
	s.must(begin("up", 80))
	s.must(begin("up", 80)) // again
	s.weighs("an upload", 80)
	s.refused(begin("other", 21), ErrQuota)
	s.must(begin("other", 20))
	s.must(&AbortUpload{Account: bob, Bucket: "bucket", Born: s.b.Born, Key: "k", ID: "other"})
	s.weighs("one of two is aborted", 80)
	s.must(s.partOf("k", "up", 1, "p1", contents[1]))
	s.must(&SetQuota{Account: bob, Allowance: 7})
	complete := s.completeOf("k", "up", contents[1], Part{Number: 1, ID: "p1"})
	complete.Object.Meta = heavy(81)
	s.refused(complete, ErrQuota)
	complete.Object.Meta = heavy(80)
	s.must(complete)
	s.weighs("the object that it becomes", 80)
	s.must(&SetQuota{Account: bob, Allowance: Unlimited})
	s.must(begin("left", 33))
	s.drop("", "k")
	s.must(&DeleteBucket{Account: bob, Name: "bucket", Born: s.b.Born})
	s.emptied()
	s.weighs("the bucket is deleted", 0)
}

// RoomForObject lets a body take the room of the object and the metadata that it replaces, and no more.
func TestTheQuotaPrecheckCountsRecords(t *testing.T) {
	s := shelved(t, 100)
	s.must(s.heavyPut("k", "v1", contents[1], 90))
	for bytes, want := range map[uint64]error{100: nil, 101: ErrQuota} {
		if err := s.view().RoomForObject(&s.b, "k", Incoming{Size: bytes, Most: bytes}); !errors.Is(err, want) {
			t.Errorf("%d bytes in the place of 10 and 90 of metadata: %v", bytes, err)
		}
	}
}

// RaiseLevel to feature level 2 charges accounts for the pins that they have.
func TestTheLevelOfQuotasWeighsThePins(t *testing.T) {
	m := found(t)
	m.must(heavyPin("p1", contents[1], 60))
	m.must(heavyPin("p2", contents[2], 7))
	m.must(&DeletePin{Account: bob, ID: "p2"})
	m.must(heavyPin("p3", contents[3], 5))
	m.must(&RaiseLevel{FeatureLevel: 2})
	m.weighs("the pins that there were", 65)
	m.must(&DeletePin{Account: bob, ID: "p1"})
	m.weighs("without one", 5)
}

// quotaLooks counts the reads and writes of quotas.
type quotaLooks struct {
	*memory
	n int
}

func (q *quotaLooks) count(k []byte) {
	if k[0] == tableQuota {
		q.n++
	}
}

func (q *quotaLooks) Get(k []byte) ([]byte, bool, error) {
	q.count(k)
	return q.memory.Get(k)
}

func (q *quotaLooks) Set(k, v []byte) error {
	q.count(k)
	return q.memory.Set(k, v)
}

// An upload or tags that weigh nothing touch no quota, and pins and objects that weigh nothing touch it for their
// content alone.
func TestSmallRecordsLeaveTheQuotaAlone(t *testing.T) {
	s := shelved(t, 100)
	s.must(s.heavyPut("k", "v1", contents[1], 0))
	up := s.begin("k", "up")
	up.Upload.Meta = heavy(0)
	for _, cmd := range []Command{
		up,
		&SetObjectTags{Account: bob, Bucket: "bucket", Born: s.b.Born, Key: "k"},
		&AbortUpload{Account: bob, Bucket: "bucket", Born: s.b.Born, Key: "k", ID: "up"},
	} {
		tx := &quotaLooks{memory: s.memory}
		if _, err := Apply(tx, s.index+1, OpID{}, cmd, &Effects{}); err != nil || tx.n != 0 {
			t.Errorf("%T: %v, %d looks at a quota", cmd, err, tx.n)
		}
	}
	for _, tc := range []struct {
		cmd  Command
		want int // those for content: judged, and for its charge read and written
	}{{heavyPin("p1", contents[1], 0), 3}, {s.heavyPut("l", "v2", contents[1], 0), 3}, {&DeletePin{Account: bob, ID: "p1"}, 1}} {
		tx := &quotaLooks{memory: s.memory}
		if _, err := Apply(tx, s.index+1, OpID{}, tc.cmd, &Effects{}); err != nil || tx.n != tc.want {
			t.Errorf("%T: %v, %d looks at a quota, want %d", tc.cmd, err, tx.n, tc.want)
		}
	}
}

// A put of content that only parts hold which are going needs room for that content beside its metadata. The
// content would stay when the parts have gone.
func TestContentOfPartsThatGoIsJudgedWithTheRecords(t *testing.T) {
	s := shelved(t, Unlimited)
	s.must(s.putOf("other", "v0", contents[1]))
	s.must(s.heavyPut("k", "v1", contents[1], 50))
	s.uploaded("up", "up", MaxFreed+1)
	s.must(&AbortUpload{Account: bob, Bucket: "bucket", Born: s.b.Born, Key: "up", ID: "up"})
	s.must(&SetQuota{Account: bob, Allowance: 7})
	s.refused(s.heavyPut("k", "v2", cidAt(t, 0), 41), ErrLimited)
	s.must(s.heavyPut("k", "v2", cidAt(t, 0), 40))
	s.cleared()
	if q := s.quota(bob); q.Used() != 60 {
		t.Errorf("10 bytes beside those of the other object, and 40 of metadata: %+v", q)
	}
}
