package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/ipfs/go-cid"
	mh "github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const (
	// scaleEntry is the number of pins of one log entry, and of the reports that follow it.
	scaleEntry = 32
	// scaleBegan is when the first pin was created, in milliseconds.
	scaleBegan = 1_700_000_000_000
)

// scaled is a state on the disk that grows as that of a cluster of three nodes with two copies.
type scaled struct {
	b       *testing.B
	store   *Store
	applier state.Applier
	index   uint64
	account state.AccountID
	nodes   [3]state.NodeID
	bucket  state.Bucket
	n       int // pins or objects so far
	counts  map[string][2]int
}

func newScaled(b *testing.B, opts Options) *scaled {
	b.Helper()
	opts.Sparse = &Sparse{Is: state.Sparse, After: state.SparseAfter}
	if os.Getenv("HOLDFAST_PASSING") != "0" {
		opts.Passing = state.Passing
	}
	opts.CacheBytes = 64 << 20 // as in config
	store, err := Open(b.TempDir(), opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	s := &scaled{b: b, store: store, account: "3d8a5e0c-6a0c-4b5b-9d53-0a7d1f7b2f11"}
	for i := range s.nodes {
		s.nodes[i] = state.NodeID(fmt.Sprintf("12D3KooWQ%dnJZ3vR7mXkT5cWfHd2sYpLbGqAe8uNxVt6rKjMhD4w", i))
	}
	s.apply(&state.InitCluster{
		Cluster:  state.Cluster{ID: "c", Replication: 2, WriteCopies: 2, Operator: s.account},
		Node:     state.Node{ID: s.nodes[0]},
		Operator: state.Account{ID: s.account, Email: "alice@example.org"},
	})
	s.apply(&state.JoinNode{Node: state.Node{ID: s.nodes[1]}}, &state.JoinNode{Node: state.Node{ID: s.nodes[2]}})
	s.apply(&state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	s.apply(&state.CreateBucket{Bucket: state.Bucket{Account: s.account, Name: "bucket", Created: 1}})
	view := store.View()
	defer view.Close()
	if s.bucket, err = state.NewView(view, 0).Bucket(s.account, "bucket"); err != nil {
		b.Fatal(err)
	}
	return s
}

// apply applies commands in one transaction, as one entry would be.
func (s *scaled) apply(cmds ...state.Command) {
	s.b.Helper()
	tx := s.store.Begin()
	defer tx.Discard()
	for _, cmd := range cmds {
		s.index++
		var op state.OpID
		sum, _ := mh.Sum(binary.BigEndian.AppendUint64(nil, s.index), mh.SHA2_256, -1)
		copy(op[:], sum[2:])
		binary.BigEndian.PutUint64(op[:], scaleBegan<<16+s.index<<15) // as consensus makes them
		if _, ok := cmd.(*state.ReportCopies); ok {
			op = state.OpID{}
		}
		if _, err := s.applier.Apply(tx, 100+s.index, op, cmd, &state.Effects{}); err != nil {
			s.b.Fatal(err)
		}
	}
	if os.Getenv("HOLDFAST_KINDS") != "" {
		s.kinds(tx)
	}
	if err := tx.Commit(false); err != nil {
		s.b.Fatal(err)
	}
}

// random returns text like a random UUID.
func random(n int) string { return uuidOf(idBytes(n)) }

// ordered returns text like a UUID of version 7: two of a millisecond.
func ordered(n int) string {
	b := idBytes(n)
	binary.BigEndian.PutUint64(b, scaleBegan<<16+uint64(n)<<15)
	return uuidOf(b)
}

func idBytes(n int) []byte {
	sum, _ := mh.Sum(binary.BigEndian.AppendUint64([]byte("id"), uint64(n)), mh.SHA2_256, -1)
	return sum[2:18]
}

func uuidOf(b []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func contentOf(n int) cid.Cid {
	sum, _ := mh.Sum(binary.BigEndian.AppendUint64(nil, uint64(n)), mh.SHA2_256, -1)
	return cid.NewCidV1(cid.Raw, sum)
}

// pins adds one entry of pins, and the reports of two nodes that they hold the content, an entry each.
func (s *scaled) pins() {
	var made []state.Command
	reports := map[state.NodeID]*state.ReportCopies{}
	begun := s.index
	for i := range scaleEntry {
		c, at := contentOf(s.n), 100+begun+uint64(i)+1
		nodes := []state.NodeID{s.nodes[s.n%3], s.nodes[(s.n+1)%3]}
		made = append(made, &state.CreatePin{Nodes: nodes, Pin: state.Pin{
			ID: state.RequestID(ordered(s.n)), Account: s.account, Created: scaleBegan + state.Millis(s.n), CID: c.String(),
			Given: state.GivenName, Name: fmt.Sprintf("name %d", s.n),
		}})
		for _, n := range nodes {
			if reports[n] == nil {
				reports[n] = &state.ReportCopies{Node: n}
			}
			reports[n].Items = append(reports[n].Items, state.CopyReport{Root: state.RootOf(c), Born: at, Phase: state.Held, Size: 1024, Blocks: 1})
		}
		s.n++
	}
	s.apply(made...)
	for _, n := range s.nodes {
		s.apply(reports[n])
	}
}

// objects adds one entry of objects.
func (s *scaled) objects() {
	var made []state.Command
	for range scaleEntry {
		k := state.RootOf(contentOf(s.n))
		nodes := s.nodes[:]
		made = append(made, &state.PutObject{
			Account: s.account, Bucket: s.bucket.Name, Born: s.bucket.Born,
			Object: state.Object{
				ID: state.VersionID(random(s.n)), Key: fmt.Sprintf("folder/%09d", s.n), Root: k, Size: 1024, Created: scaleBegan + state.Millis(s.n),
				ETag: "d41d8cd98f00b204e9800998ecf8427e", Headers: map[string]string{"Content-Type": "application/octet-stream"},
			},
			Content: state.Content{
				Root: k, Bytes: 1024, Blocks: 1, Nodes: nodes, Held: []state.Holding{{Node: nodes[0]}, {Node: nodes[1]}, {Node: nodes[2]}},
			},
		})
		s.n++
	}
	s.apply(made...)
}

// cost is what a process has used so far.
type cost struct {
	cpu                              time.Duration
	allocs, allocated                uint64
	wal, batches, flushed, compacted uint64
	compactions, tombstone, elided   int64
}

func (s *scaled) cost() (c cost, m *pebble.Metrics) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		s.b.Fatal(err)
	}
	c.cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	c.allocs, c.allocated = sample[0].Value.Uint64(), sample[1].Value.Uint64()
	m = s.store.live.db.Metrics()
	c.wal, c.batches = m.WAL.BytesWritten, m.WAL.BytesIn
	for _, l := range m.Levels {
		c.flushed += l.TableBytesFlushed + l.BlobBytesFlushed
		c.compacted += l.TableBytesCompacted + l.BlobBytesCompacted
	}
	c.compactions, c.tombstone, c.elided = m.Compact.Count, m.Compact.TombstoneDensityCount, m.Compact.ElisionOnlyCount
	return c, m
}

// report prints what the last n pins have cost each.
func (s *scaled) report(what string, before cost, n int, verbose bool) cost {
	now, m := s.cost()
	per := func(a, b uint64) float64 { return float64(b-a) / float64(n) }
	total := per(before.wal+before.flushed+before.compacted, now.wal+now.flushed+now.compacted)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	s.b.Logf("%-8s at %8d: %6.1f µs  %5.1f allocs  written %6.0f B = wal %5.0f + flush %5.0f + compact %6.0f; merges %d (tombstones %d, elided %d) L0 %d debt %d MB tables %d MB heap %d MB",
		what, s.n, float64((now.cpu-before.cpu).Nanoseconds())/1e3/float64(n), per(before.allocs, now.allocs), total,
		per(before.wal, now.wal), per(before.flushed, now.flushed), per(before.compacted, now.compacted),
		now.compactions-before.compactions, now.tombstone-before.tombstone, now.elided-before.elided,
		m.Levels[0].Sublevels, m.Compact.EstimatedDebt>>20, m.DiskSpaceUsage()>>20, mem.HeapAlloc>>20)
	if verbose {
		s.b.Logf("%s", m)
	}
	return now
}

// join prints how long the parts of a transfer of the state to another node take.
func (s *scaled) join() {
	dir, began := s.b.TempDir(), time.Now()
	since := func(what string) {
		s.b.Logf("%s: %d ms", what, time.Since(began).Milliseconds())
		began = time.Now()
	}
	checkpoint := filepath.Join(dir, "checkpoint")
	if err := s.store.Checkpoint(checkpoint); err != nil {
		s.b.Fatal(err)
	}
	since("checkpoint")
	if err := VerifyCheckpoint(checkpoint, filepath.Join(dir, "scratch"), slog.New(slog.DiscardHandler), func(Getter) error { return nil }); err != nil {
		s.b.Fatal(err)
	}
	since("verify")
	archive, err := os.Create(filepath.Join(dir, "archive"))
	if err != nil {
		s.b.Fatal(err)
	}
	if err := errors.Join(WriteArchive(archive, checkpoint), archive.Sync()); err != nil {
		s.b.Fatal(err)
	}
	since("archive")
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		s.b.Fatal(err)
	}
	to, err := Open(filepath.Join(dir, "to"), s.store.opts)
	if err != nil {
		s.b.Fatal(err)
	}
	began = time.Now()
	if err := to.Restore(archive); err != nil {
		s.b.Fatal(err)
	}
	since("restore")
	if err := errors.Join(archive.Close(), to.Close()); err != nil {
		s.b.Fatal(err)
	}
}

// BenchmarkScale fills a state with as many pins or objects as HOLDFAST_SCALE says, and prints what
// each has cost.
func BenchmarkScale(b *testing.B) {
	most := 20_000
	if v, err := strconv.Atoi(os.Getenv("HOLDFAST_SCALE")); err == nil {
		most = v
	}
	step := max(most/20, 10_000)
	for _, what := range []string{"pins", "objects"} {
		b.Run(what, func(b *testing.B) {
			s := newScaled(b, Options{tune: tuned(b, os.Getenv("HOLDFAST_TUNE"))})
			add := s.pins
			if what == "objects" {
				add = s.objects
			}
			for b.Loop() {
				first, _ := s.cost()
				last, n, begun := first, 0, s.n
				for s.n-begun < most {
					if add(); s.n-begun-n >= step {
						last, n = s.report(what, last, s.n-begun-n, s.n-begun+scaleEntry > most), s.n-begun
					}
				}
				for _, k := range slices.Sorted(maps.Keys(s.counts)) {
					b.Logf("%-8s %5.2f keys %6.1f B", k, float64(s.counts[k][0])/float64(most), float64(s.counts[k][1])/float64(most))
				}
				s.report("all", first, s.n-begun, true)
				s.join()
				b.ReportMetric(float64(most)/b.Elapsed().Seconds(), "adds/s")
			}
		})
	}
}

// tuned reads settings of Pebble, as "memtable=32,l0=16".
func tuned(b *testing.B, text string) func(*pebble.Options) {
	return func(o *pebble.Options) {
		for field := range strings.SplitSeq(text, ",") {
			name, value, ok := strings.Cut(field, "=")
			if !ok {
				continue
			}
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			switch name {
			case "cache":
				o.CacheSize = n << 20
			case "memtable":
				o.MemTableSize = uint64(n) << 20
			case "l0":
				o.L0CompactionThreshold, o.L0StopWritesThreshold = int(n), int(3*n)
			case "split":
				o.FlushSplitBytes = n << 20
			case "base":
				o.LBaseMaxBytes = n << 20
			case "multiplier":
				o.Experimental.LevelMultiplier = int(n)
			case "f0", "f1", "f2", "f3":
				o.TargetFileSizes[name[1]-'0'] = n << 20
			case "tomb":
				o.Experimental.TombstoneDenseCompactionThreshold = float64(n) / 100
			case "dense":
				o.Experimental.NumDeletionsThreshold = int(n)
			case "ml":
				o.Experimental.MultiLevelCompactionHeuristic = pebble.WriteAmpHeuristic{AddPropensity: float64(n) / 10, AllowL0: true}
			case "compress":
				o.ApplyCompressionSettings(func() pebble.DBCompressionSettings {
					return []pebble.DBCompressionSettings{pebble.DBCompressionNone, pebble.DBCompressionFastest, pebble.DBCompressionBalanced, pebble.DBCompressionGood}[n]
				})
			case "values":
				o.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
					return pebble.ValueSeparationPolicy{Enabled: true, MinimumSize: int(n), MaxBlobReferenceDepth: 10, RewriteMinimumAge: time.Minute, TargetGarbageRatio: 0.2}
				}
			case "block":
				for i := range o.Levels {
					o.Levels[i].BlockSize = int(n) << 10
				}
			case "nobloom":
				for i := range o.Levels {
					o.Levels[i].FilterPolicy = pebble.NoFilterPolicy
				}
			default:
				b.Fatalf("no setting %q", name)
			}
		}
	}
}

// kinds counts the writes of a transaction by table and kind.
func (s *scaled) kinds(tx *Tx) {
	for key, k := range tx.overlay.keys {
		if !k.written {
			continue
		}
		what := "del "
		if k.exists {
			what = "set "
		}
		what += key[:1]
		if key[0] == 'P' {
			at := 3 + int(binary.BigEndian.Uint16([]byte(key[1:])))
			what += key[at : at+1]
			if key[at] == 'l' {
				what += strconv.Itoa(int(key[at+1]))
			}
		}
		if s.counts == nil {
			s.counts = map[string][2]int{}
		}
		c := s.counts[what]
		s.counts[what] = [2]int{c[0] + 1, c[1] + len(key) + len(k.value)}
	}
}
