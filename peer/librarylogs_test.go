package peer

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"

	golog "github.com/ipfs/go-log/v2"
	"github.com/libp2p/go-libp2p/gologshim"
)

// lines is where a log is written to, by any goroutine.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// said returns what loggers whose name is that said.
func (l *lines) said(t *testing.T, name string) (records []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.b.Bytes()) {
		var r map[string]any
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if r["logger"] == name {
			delete(r, "time")
			records = append(records, r)
		}
	}
	return records
}

// The node's log has the errors that libraries log, in its form, and nothing else of them at any level.
func TestErrorsOfLibrariesAreInTheLog(t *testing.T) {
	var out lines
	LibraryLogs(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	t.Cleanup(func() { LibraryLogs(slog.DiscardHandler) })
	swarm := gologshim.Logger("test-swarm")
	swarm.Warn("left out")
	swarm.With("addr", "a").Error("accept", "err", errors.New("why"))
	swarm.Error("accept", "err", errors.New("listener closed"))
	dht := golog.Logger("test-dht")
	if err := golog.SetLogLevel("test-dht", "debug"); err != nil {
		t.Fatal(err)
	}
	dht.Warnw("left out")
	dht.With("addr", "a").Errorw("accept", "err", errors.New("why"))
	dht.Errorf("block %s", "b")
	for name, want := range map[string][]string{"test-swarm": {"accept"}, "test-dht": {"accept", "block b"}} {
		got := out.said(t, name)
		if len(got) != len(want) {
			t.Fatalf("%s: %v", name, got)
		}
		for i, r := range got {
			if r["msg"] != want[i] || r["level"] != "ERROR" {
				t.Errorf("%s: %v", name, r)
			}
		}
		if got[0]["addr"] != "a" || got[0]["err"] != "why" {
			t.Errorf("%s: %v", name, got[0])
		}
	}
}
