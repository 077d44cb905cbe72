package cluster

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var flips = flag.Int("flips", 1, "bits to flip in each kind of file of a node")

// fileKind is one kind of file that a node keeps its copy of the state in.
type fileKind struct {
	name string
	path func(dir string) []string                                 // candidates
	at   func(random *rand.Rand, raw []byte) (offset int, ok bool) // nil: anywhere
}

func glob(pattern string) func(string) []string {
	return func(dir string) []string {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			panic(err) // a bad pattern
		}
		return found
	}
}

// inText finds a place within the last occurrence of a text.
func inText(text string) func(*rand.Rand, []byte) (int, bool) {
	return func(random *rand.Rand, raw []byte) (int, bool) {
		at := bytes.LastIndex(raw, []byte(text))
		return at + random.IntN(len(text)), at >= 0
	}
}

func fileKinds() []fileKind {
	return []fileKind{
		{"raft log entry", glob("raft/raft.db"), inText("flip-raftlogentry")},
		{"stable store", glob("raft/raft.db"), inText("CurrentTerm")},
		{"raft log, anywhere", glob("raft/raft.db"), func(random *rand.Rand, raw []byte) (int, bool) { return random.IntN(min(len(raw), 1<<17)), true }},
		{"state, write-ahead log", glob("state/gen-*/*.log"), nil},
		{"state, table", glob("state/gen-*/*.sst"), nil},
		{"state, manifest", glob("state/gen-*/MANIFEST-*"), nil},
		{"state, options", glob("state/gen-*/OPTIONS-*"), nil},
		{"state, pointer", glob("state/live"), nil},
		{"snapshot, description", glob("raft/*-*-*/meta.json"), nil},
		{"snapshot, table", glob("raft/*-*-*/checkpoint/*.sst"), nil},
		{"snapshot, manifest", glob("raft/*-*-*/checkpoint/MANIFEST-*"), nil},
	}
}

// TestAFlippedBitInAnyFileIsRepairedOrRefused promises that a node repairs itself, and has the state of the others,
// after one bit flipped in any file of its copy of the state (A10, P11). The file may have been made minutes ago. A
// node alone may refuse to start and name the file; here others have the state.
func TestAFlippedBitInAnyFileIsRepairedOrRefused(t *testing.T) {
	nodes := threeKept(t)
	for i := range 40 {
		write(t, nodes[0], fmt.Sprintf("flip-%d@example.org", i))
	}
	sick := nodes[1]
	random := rand.New(rand.NewPCG(5, 6))
	outcomes := map[string]int{}
	for _, kind := range fileKinds() {
		for i := range *flips {
			// A second start makes tables of what was in the log.
			write(t, nodes[2], fmt.Sprintf("flip-%s-%d@example.org", strings.ReplaceAll(kind.name, " ", ""), i))
			sameState(t, nodes)
			if err := sick.stop(); err != nil {
				t.Fatalf("%s: %v", kind.name, err)
			}
			before := sick.log.String()
			rebuilds := sick.rebuilds.Load()
			what := flip(t, kind, sick.config.Data, random)
			sick.start()
			outcome := outcomeOf(t, sick, what)
			if outcome == "refused" {
				t.Errorf("%s: refused to start:\n%s", what, strings.TrimPrefix(sick.log.String(), before))
				if err := removeAllBut(sick.config.Data, "identity.key"); err != nil {
					t.Fatal(err)
				}
				sick.start()
			}
			await(t, what+": whole", sick.whole)
			sameState(t, nodes) // reads everything, and so finds what is damaged
			await(t, what+": whole after it was read", sick.whole)
			sameState(t, nodes)
			news := strings.TrimPrefix(sick.log.String(), before)
			switch {
			case outcome == "refused":
			case sick.rebuilds.Load() > rebuilds, strings.Contains(news, "moved a folder aside"):
				outcome = "set aside and made anew"
			case strings.Contains(news, "snapshot cannot be used"), strings.Contains(news, "snapshot is not readable"):
				outcome = "snapshot passed over"
			default:
				outcome = "harmless, or made up for by the log"
			}
			outcomes[kind.name+": "+outcome]++
		}
	}
	for what, n := range outcomes {
		t.Logf("%3d %s", n, what)
	}
}

// flip flips one bit of a file of a kind.
func flip(t *testing.T, kind fileKind, dir string, random *rand.Rand) string {
	t.Helper()
	var paths []string
	for _, p := range kind.path(dir) {
		if info, err := os.Stat(p); err == nil && info.Size() > 0 {
			paths = append(paths, p)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if len(paths) == 0 {
		return kind.name + ": there is none"
	}
	path := paths[random.IntN(len(paths))]
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := random.IntN(len(raw))
	if kind.at != nil {
		var found bool
		if at, found = kind.at(random, raw); !found {
			t.Fatalf("%s: not found in %s", kind.name, path)
		}
	}
	bit := random.IntN(8)
	raw[at] ^= 1 << bit
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s: bit %d of byte %d of %d in %s", kind.name, bit, at, len(raw), path)
}

// outcomeOf waits until the node is whole, or has refused to start with words
// that name a file or folder of it.
func outcomeOf(t *testing.T, k *keeper, what string) string {
	t.Helper()
	outcome := ""
	await(t, what+": decided", func() bool {
		select {
		case err := <-k.ended:
			if err == nil || !strings.Contains(err.Error(), k.config.Data) {
				t.Errorf("%s: ended without the name of a file: %v", what, err)
			}
			k.cancel()
			outcome = "refused"
			return true
		case <-time.After(time.Millisecond):
			return k.whole()
		}
	})
	return outcome
}
