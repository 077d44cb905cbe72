package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

func openKV(t testing.TB, dir string) *kv.Store {
	t.Helper()
	s, err := kv.Open(dir, kv.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func set(t testing.TB, s *kv.Store, key, value string) {
	t.Helper()
	tx := s.Begin()
	defer tx.Discard()
	must(t, tx.Set([]byte(key), []byte(value)))
	must(t, tx.Commit(false))
}

var testConfiguration = raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: "a", Address: "a"}}}

func create(t testing.TB, s *Snapshots, index uint64) *Sink {
	t.Helper()
	sink, err := s.Create(1, index, 2, testConfiguration, 1, nil)
	must(t, err)
	return sink.(*Sink)
}

func openSnapshots(t testing.TB, dir string, retain int) *Snapshots {
	t.Helper()
	s, err := OpenSnapshots(dir, retain, nil)
	must(t, err)
	return s
}

func readAll(t testing.TB, s *Snapshots, id string) []byte {
	t.Helper()
	meta, r, err := s.Open(id)
	must(t, err)
	raw, err := io.ReadAll(r)
	must(t, errors.Join(err, r.Close(), r.Close()))
	if int64(len(raw)) != meta.Size {
		t.Errorf("%d bytes, announced %d", len(raw), meta.Size)
	}
	return raw
}

// A snapshot of a checkpoint and one that arrived as a stream restore the same state. They are listed only after
// Close.
func TestCheckpointAndStreamSnapshotsRestoreAlike(t *testing.T) {
	state, dir := openKV(t, t.TempDir()), t.TempDir()
	for i := range 100 {
		set(t, state, fmt.Sprint("key", i), "value")
	}
	snaps := openSnapshots(t, dir, 3)
	sink := create(t, snaps, 10)
	checkpoint := filepath.Join(t.TempDir(), "c")
	must(t, state.Checkpoint(checkpoint))
	must(t, sink.Adopt(checkpoint))
	if _, err := sink.Write([]byte("x")); err == nil {
		t.Error("a write after Adopt is accepted")
	}
	if list, _ := snaps.List(); len(list) != 0 {
		t.Error("visible before Close")
	}
	must(t, sink.Close())
	must(t, sink.Close()) // Raft and its FSM may both do it
	must(t, sink.Cancel())
	archive := readAll(t, snaps, sink.ID())

	copied := create(t, snaps, 11)
	for part := range bytes.SplitSeq(archive, []byte("k")) { // any chunks will do
		_, err := copied.Write(append(part, 'k'))
		must(t, err)
	}
	must(t, copied.Cancel())
	copied = create(t, snaps, 11)
	_, err := copied.Write(archive)
	must(t, err)
	must(t, copied.Close())

	snaps = openSnapshots(t, dir, 3)
	list, err := snaps.List()
	must(t, err)
	if len(list) != 2 || list[0].Index != 11 || list[1].Index != 10 {
		t.Fatalf("list %+v", list)
	}
	want := &raft.SnapshotMeta{
		Version: 1, ID: sink.ID(), Index: 10, Term: 2,
		Configuration: testConfiguration, ConfigurationIndex: 1, Size: int64(len(archive)),
	}
	if !reflect.DeepEqual(list[1], want) {
		t.Errorf("described as %+v, want %+v", list[1], want)
	}
	for _, meta := range list {
		other := openKV(t, t.TempDir())
		must(t, other.Restore(bytes.NewReader(readAll(t, snaps, meta.ID))))
		if v, ok, err := other.Get([]byte("key42")); string(v) != "value" || !ok || err != nil {
			t.Errorf("snapshot %d: %q, %v, %v", meta.Index, v, ok, err)
		}
	}
}

// Only the newest snapshots stay, except one that is being read, and one with a damaged description counts for none.
func TestOnlyTheNewestAreRetainedAndNoneWhileItIsRead(t *testing.T) {
	dir := t.TempDir()
	snaps := openSnapshots(t, dir, 2)
	write := func(index uint64) string {
		sink := create(t, snaps, index)
		_, err := fmt.Fprint(sink, "snapshot ", index)
		must(t, errors.Join(err, sink.Close()))
		return sink.ID()
	}
	oldest := write(1)
	_, r, err := snaps.Open(oldest)
	must(t, err)
	for i := uint64(2); i <= 5; i++ {
		write(i)
	}
	if raw, err := io.ReadAll(r); string(raw) != "snapshot 1" || err != nil {
		t.Errorf("read %q, %v", raw, err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 3 {
		t.Errorf("folders while one is read: %v", names)
	}
	must(t, r.Close())
	list, err := snaps.List()
	must(t, err)
	names, _ := os.ReadDir(dir)
	if len(list) != 2 || list[0].Index != 5 || list[1].Index != 4 || len(names) != 2 {
		t.Errorf("left %v, %v", list, names)
	}
	// A damaged description neither shows nor pushes a good snapshot out.
	meta := filepath.Join(dir, list[0].ID, metaFile)
	raw, err := os.ReadFile(meta)
	must(t, err)
	must(t, os.WriteFile(meta, bytes.Replace(raw, []byte(`"term":2`), []byte(`"term":3`), 1), 0o600))
	if _, _, err := snaps.Open(list[0].ID); !errors.Is(err, ErrCorrupt) {
		t.Errorf("open: %v", err)
	}
	write(6)
	list, err = snaps.List()
	must(t, err)
	if len(list) != 2 || list[0].Index != 6 || list[1].Index != 4 {
		t.Errorf("list %+v", list)
	}
	if _, _, err := snaps.Open("../" + list[0].ID); err == nil {
		t.Error("a path is taken for an id")
	}
}

// List returns the other snapshots if the description of one has just gone or is damaged, and logs only the damage.
func TestAListGoesOnBehindWhatWasRemovedMeanwhile(t *testing.T) {
	for _, damage := range []string{"removed", "damaged"} {
		t.Run(damage, func(t *testing.T) {
			dir := t.TempDir()
			var said bytes.Buffer
			snaps, err := OpenSnapshots(dir, 3, slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn})))
			must(t, err)
			var ids []string
			for index := range uint64(3) {
				sink := create(t, snaps, index+1)
				_, err := fmt.Fprint(sink, "snapshot ", index)
				must(t, errors.Join(err, sink.Close()))
				ids = append(ids, sink.ID())
			}
			meta := filepath.Join(dir, ids[1], metaFile)
			if damage == "removed" {
				must(t, os.Remove(meta))
			} else {
				must(t, os.WriteFile(meta, []byte("{}"), 0o600))
			}
			list, err := snaps.List()
			if must(t, err); len(list) != 2 || list[0].ID != ids[2] || list[1].ID != ids[0] {
				t.Errorf("list %+v of %v", list, ids)
			}
			if (said.Len() > 0) != (damage == "damaged") { // a removal is no damage
				t.Errorf("logged %s", said.String())
			}
		})
	}
}

// OpenSnapshots removes a snapshot that a crash has left unfinished.
func TestUnfinishedSnapshotsOfACrashAreRemoved(t *testing.T) {
	dir := t.TempDir()
	snaps := openSnapshots(t, dir, 2)
	sink := create(t, snaps, 1)
	_, err := sink.Write(make([]byte, sinkBufferBytes+1))
	must(t, err)
	snaps = openSnapshots(t, dir, 2)
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Errorf("left %v", names)
	}
	// The old sink cannot bring it back.
	if err := sink.Close(); err == nil {
		t.Error("closed without an error")
	}
	if list, _ := snaps.List(); len(list) != 0 {
		t.Errorf("list %+v", list)
	}
}

// Verify finds a flipped bit in each kind of file of a snapshot. SetAside takes the snapshot off the list, and only
// the newest stays aside. Verify does not change a snapshot.
func TestASnapshotThatRottedIsNotGood(t *testing.T) {
	state := openKV(t, t.TempDir())
	for i := range 2000 {
		set(t, state, fmt.Sprint("key", i), strings.Repeat("v", 300))
	}
	made := func(dir string, stream bool) (*Snapshots, string) {
		snaps := openSnapshots(t, dir, 2)
		sink := create(t, snaps, 10)
		checkpoint := filepath.Join(t.TempDir(), "c")
		must(t, state.Checkpoint(checkpoint))
		if stream {
			must(t, kv.WriteArchive(sink, checkpoint))
		} else {
			must(t, sink.Adopt(checkpoint))
		}
		must(t, sink.Close())
		return snaps, sink.ID()
	}
	newest := func(get kv.Getter) error {
		if _, ok, err := get([]byte("key1999")); !ok || err != nil {
			return fmt.Errorf("the newest key is not there: %w", err)
		}
		return nil
	}
	for _, tc := range []struct {
		name, file string
		stream     bool
	}{
		{"log of a checkpoint", "checkpoint/*.log", false},
		{"manifest of a checkpoint", "checkpoint/MANIFEST-*", false},
		{"stream", "stream", true},
		{"description", "meta.json", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			snaps, id := made(dir, tc.stream)
			sent := readAll(t, snaps, id)
			if rotten, err := snaps.Verify(id, newest); rotten || err != nil {
				t.Fatalf("whole: %v, %v", rotten, err)
			}
			if !bytes.Equal(readAll(t, snaps, id), sent) {
				t.Fatal("looking at the snapshot has changed it")
			}
			found, err := filepath.Glob(filepath.Join(dir, id, tc.file))
			if err != nil || len(found) == 0 {
				t.Fatal(found, err)
			}
			raw, err := os.ReadFile(found[0])
			must(t, err)
			raw[len(raw)/3] ^= 4
			// Another file: that one may be a link to the state's.
			must(t, errors.Join(os.Remove(found[0]), os.WriteFile(found[0], raw, 0o600)))
			if rotten, err := snaps.Verify(id, newest); !rotten || err == nil {
				t.Fatalf("rotten: %v, %v", rotten, err)
			}
			must(t, snaps.SetAside(id))
			if list, err := snaps.List(); err != nil || len(list) != 0 {
				t.Errorf("it is still listed: %+v, %v", list, err)
			}
			_, other := made(dir, tc.stream)
			must(t, snaps.SetAside(other))
			if aside, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(aside) != 1 {
				t.Errorf("one is kept aside, not %v, %v", aside, err)
			}
		})
	}
}

// Close of a snapshot whose bytes the disk does not confirm fails, and the snapshot is not listed.
func TestASnapshotThatIsNotSyncedIsNone(t *testing.T) {
	dir := t.TempDir()
	s := openSnapshots(t, dir, 2)
	sink := create(t, s, 7)
	_, err := sink.Write([]byte("x"))
	must(t, err)
	must(t, sink.stream.Close())
	r, w, err := os.Pipe() // takes bytes, and cannot be synced
	must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	sink.stream = w
	sink.buffer.Reset(w)
	if err := sink.Close(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("closed: %v", err)
	}
	list, err := s.List()
	must(t, err)
	if len(list) != 0 {
		t.Errorf("listed: %v", list)
	}
}

// A snapshot whose description cannot be read is not listed, and Open of it fails.
func TestASnapshotWhoseDescriptionCannotBeReadIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	s := openSnapshots(t, dir, 2)
	sink := create(t, s, 7)
	_, err := sink.Write([]byte("x"))
	must(t, errors.Join(err, sink.Close()))
	meta := filepath.Join(dir, sink.ID(), metaFile)
	must(t, errors.Join(os.Remove(meta), os.Mkdir(meta, dirPerm))) // it opens, and reads fail
	list, err := s.List()
	must(t, err)
	if len(list) != 0 {
		t.Errorf("listed: %v", list)
	}
	if _, _, err := s.Open(sink.ID()); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("opened: %v", err)
	}
}
