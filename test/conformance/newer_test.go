//go:build conformance

package conformance

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// TestWhatANewerReleaseWroteStopsTheStart promises that a node does not start with a file of a newer format, says so
// in one sentence, and changes nothing of the file. It raises the version of every kind of file in the folder of a
// node that was stopped, as a newer release would have left it.
func TestWhatANewerReleaseWroteStopsTheStart(t *testing.T) {
	longForm(t)
	t.Parallel() // a node of its own
	c := harness.Start(t, harness.Options{Nodes: 1})
	n := c.Nodes[0]
	putObjects(t, c.Nodes, n.UserKey("newer@example.org").Token, 3)
	n.Stop()
	const sentence = "a newer release of holdfast wrote it; start that release or a newer one"
	for _, tc := range []struct {
		name string
		age  func(t *testing.T, dir string) (file string)
		says string
	}{
		{"format", func(t *testing.T, dir string) string {
			return overwrite(t, filepath.Join(dir, "format"), []byte("holdfast folder 2\n"))
		}, "format has format 2, and this release knows formats up to 1: " + sentence},
		{"notes", func(t *testing.T, dir string) string {
			return overwrite(t, filepath.Join(dir, "notes"), []byte("holdfast notes 2\nwhatever it has"))
		}, "notes has format 2, and this release knows formats up to 1: " + sentence},
		{"settlements", func(t *testing.T, dir string) string {
			return overwrite(t, filepath.Join(dir, "settlements"), []byte("holdfast notes 2\nwhatever it has"))
		}, "settlements has format 2, and this release knows formats up to 1: " + sentence},
		{"settings", func(t *testing.T, dir string) string {
			return overwrite(t, filepath.Join(dir, "config.toml"), []byte("[cluster]\nfederation = true\n"))
		}, "cluster.federation"},
		{"Pebble of the state", func(t *testing.T, dir string) string { return agePebble(t, dir, "state") }, sentence},
		{"level of the state", func(t *testing.T, dir string) string {
			return alter(t, dir, "state", func(key, value []byte) []byte {
				if !bytes.HasSuffix(key, []byte("level")) || len(value) != 8 {
					return nil
				}
				return binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(value)+1)
			})
		}, "is known here: this release is too old for the cluster, upgrade it"},
		{"Pebble of the index of blocks", func(t *testing.T, dir string) string { return agePebble(t, dir, "blocks", "index") }, sentence},
		{"index of blocks", func(t *testing.T, dir string) string {
			return alter(t, dir, filepath.Join("blocks", "index"), func(key, value []byte) []byte {
				if string(key) != "m" {
					return nil
				}
				return append([]byte{value[0] + 1}, value[1:]...)
			})
		}, "the index of the blocks has format 5, and this release knows formats up to 4: " + sentence},
		{"segment", func(t *testing.T, dir string) string {
			return rewrite(t, only(t, dir, "blocks", "segments", "*"), func(b []byte) {
				const copies, size, sumAt = 2, 32, 28
				for at := 0; at < copies*size; at += size {
					b[at+7]++
					binary.BigEndian.PutUint32(b[at+sumAt:], crc32.Checksum(b[at:at+sumAt], castagnoli))
				}
			})
		}, "has format 2, and this release knows formats up to 1: " + sentence},
		{"bbolt of the log", func(t *testing.T, dir string) string {
			return rewrite(t, filepath.Join(dir, "raft", "raft.db"), func(b []byte) {
				const head, sumAt = 16, 56 // of a page, and in its meta
				page := int(binary.NativeEndian.Uint32(b[head+8:]))
				for _, meta := range [][]byte{b[head:], b[page+head:]} {
					binary.NativeEndian.PutUint32(meta[4:], binary.NativeEndian.Uint32(meta[4:])+1)
					sum := fnv.New64a()
					_, _ = sum.Write(meta[:sumAt])
					binary.NativeEndian.PutUint64(meta[sumAt:], sum.Sum64())
				}
			})
		}, "raft.db has format 3, and this release knows formats up to 2: " + sentence},
		{"entry of the log", ageEntry, "the log of Raft has format 2, and this release knows formats up to 1: " + sentence},
		{"snapshot", addSnapshot, "and this release knows formats up to 1: " + sentence},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "node")
			if err := os.CopyFS(dir, os.DirFS(n.Dir)); err != nil {
				t.Fatal(err)
			}
			file := tc.age(t, dir)
			before := read(t, file)
			r := harness.Run(t, nil, "", "run", "--data", dir, "--routing", "off",
				"--listen", "/ip4/127.0.0.1/tcp/0", "--cluster-listen", "/ip4/127.0.0.1/tcp/0",
				"--pinning-listen", "127.0.0.1:0", "--s3-listen", "127.0.0.1:0", "--console-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
			line := ""
			for _, l := range slices.Backward(strings.Split(strings.TrimSpace(r.Stderr), "\n")) {
				if line = l; strings.HasPrefix(l, "holdfast: ") {
					break
				}
			}
			if r.Code != 1 || !strings.HasPrefix(line, "holdfast: ") || !strings.Contains(line, tc.says) {
				t.Errorf("ended with %d, want a line with %q:\n%s", r.Code, tc.says, r.Stderr)
			}
			after := read(t, file)
			if same := bytes.Equal(after, before) || strings.HasSuffix(file, ".db") && sameEntries(t, before, after); !same {
				t.Errorf("%s was changed", file)
			}
			if aside, err := os.ReadDir(filepath.Join(dir, "aside")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("something was set aside: %v %v", aside, err)
			}
		})
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func overwrite(t *testing.T, file string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// rewrite changes a file.
func rewrite(t *testing.T, file string, change func([]byte)) string {
	t.Helper()
	b := read(t, file)
	change(b)
	return overwrite(t, file, b)
}

// only returns the last file of a pattern that matches one at least.
func only(t *testing.T, parts ...string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(parts...))
	if err != nil || len(found) == 0 {
		t.Fatalf("%v: %v %v", parts, found, err)
	}
	return found[len(found)-1]
}

// agePebble renames the marker of a store's format, as Pebble does when it raises it.
func agePebble(t *testing.T, parts ...string) string {
	t.Helper()
	marker := only(t, append(parts, "gen-*", "marker.format-version.*")...)
	fields := strings.Split(filepath.Base(marker), ".")
	change, err := strconv.Atoi(fields[2])
	if err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(filepath.Dir(marker), fmt.Sprintf("marker.format-version.%06d.999", change+1))
	if err := os.Rename(marker, newer); err != nil {
		t.Fatal(err)
	}
	return newer
}

// alter changes values of a store, those for which change returns another one, and returns
// a file of it.
func alter(t *testing.T, dir, store string, change func(key, value []byte) []byte) string {
	t.Helper()
	live := only(t, dir, store, "gen-*")
	db, err := pebble.Open(live, &pebble.Options{FormatMajorVersion: pebble.FormatNewest, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for it.First(); it.Valid(); it.Next() {
		if v := change(it.Key(), it.Value()); v != nil {
			if err := db.Set(bytes.Clone(it.Key()), v, pebble.Sync); err != nil {
				t.Fatal(err)
			}
			changed++
		}
	}
	if err := errors.Join(it.Close(), db.Close()); err != nil || changed != 1 {
		t.Fatalf("%d values changed, %v", changed, err)
	}
	return only(t, live, "MANIFEST-*")
}

// quiet is a logger of Pebble's.
type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(string, ...any)             {}
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// ageEntry gives the newest entry of the log the next version.
func ageEntry(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "raft", "raft.db")
	db, err := raftboltdb.New(raftboltdb.Options{Path: file, BoltOptions: &bolt.Options{NoFreelistSync: true, FreelistType: bolt.FreelistMapType}})
	if err != nil {
		t.Fatal(err)
	}
	index, err := db.LastIndex()
	var entry raft.Log
	if err = errors.Join(err, db.GetLog(index, &entry)); err != nil {
		t.Fatal(err)
	}
	frame := bytes.Clone(entry.Data[:len(entry.Data)-4])
	frame[0]++
	sum := crc32.Update(crc32.Checksum(frame, castagnoli), castagnoli, binary.BigEndian.AppendUint64(nil, index))
	entry.Data = binary.BigEndian.AppendUint32(frame, sum)
	if err := errors.Join(db.StoreLog(&entry), db.Close()); err != nil {
		t.Fatal(err)
	}
	return file
}

// sameEntries tells whether two files of a log have the same entries and values: bbolt notes in
// a file that it was opened.
func sameEntries(t *testing.T, a, b []byte) bool {
	t.Helper()
	all := func(file []byte) (text []string) {
		db, err := bolt.Open(overwrite(t, filepath.Join(t.TempDir(), "raft.db"), file), 0o600, &bolt.Options{NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
		if err != nil {
			t.Fatal(err)
		}
		err = db.View(func(tx *bolt.Tx) error {
			return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
				return bucket.ForEach(func(k, v []byte) error {
					text = append(text, fmt.Sprintf("%s %x %x", name, k, v))
					return nil
				})
			})
		})
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		return text
	}
	before, after := all(a), all(b)
	return len(before) > 0 && slices.Equal(before, after)
}

// addSnapshot puts one beside the log whose description is of the next version.
func addSnapshot(t *testing.T, dir string) string {
	t.Helper()
	const id = "00000000000000000001-00000000000000000001-0000000000001"
	fields := fmt.Appendf(nil, `{"version":2,"id":%q}`, id)
	raw, err := json.Marshal(map[string]any{"crc32c": fmt.Sprintf("%08x", crc32.Checksum(fields, castagnoli)), "meta": json.RawMessage(fields)})
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "raft", id)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return overwrite(t, filepath.Join(folder, "meta.json"), raw)
}
