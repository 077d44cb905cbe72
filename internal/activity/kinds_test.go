package activity

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sourceText returns the sources of the program without tests.
func sourceText(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"cmd", "cluster", "consensus", "peer", "storage"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// Every message that has a kind is one that the program logs, and every kind has some.
func TestKindsNameMessagesThatAreLogged(t *testing.T) {
	own, err := os.ReadFile("kinds.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(own), "func kindOf")
	sources, of := sourceText(t), map[Kind]int{}
	quoted := strings.Split(table, `"`)
	for i := 1; i < len(quoted); i += 2 {
		if message := quoted[i]; message != "" {
			of[kindOf(message)]++
			if !strings.Contains(sources, strconv.Quote(message)) {
				t.Errorf("nothing logs %q", message)
			}
		}
	}
	for _, kind := range Kinds() {
		if of[kind] == 0 {
			t.Errorf("no message has the kind %s", kind)
		}
	}
	if of[""] > 0 {
		t.Errorf("%d messages have no kind", of[""])
	}
}

// The records of a kind stay while many others come, and those of several kinds are in one order.
func TestTheNewestRecordsOfKindsAreKept(t *testing.T) {
	var l Log
	log := slog.New(l.Handler(slog.DiscardHandler))
	log.Info("leader changed", "n", "first")
	log.Error("disk is full: writes wait for room")
	log.Info("leader changed", "n", "second")
	for i := range 2 * maxRecords {
		log.Info(fmt.Sprint(i))
	}
	if all := l.Newest(); len(all) != maxRecords || slices.ContainsFunc(all, func(r Record) bool { return r.Kind != "" }) {
		t.Errorf("%d records of all kinds", len(all))
	}
	messages := func(kinds ...Kind) (all []string) {
		for _, r := range l.Newest(kinds...) {
			all = append(all, r.Message)
		}
		return all
	}
	if got := messages(Elections); !slices.Equal(got, []string{"leader changed", "leader changed"}) || l.Newest(Elections)[0].Attrs[0].Value != "second" {
		t.Errorf("elections are %q", got)
	}
	if got := messages(Disks, Elections); !slices.Equal(got, []string{"leader changed", "disk is full: writes wait for room", "leader changed"}) {
		t.Errorf("disks and elections are %q", got)
	}
	if got := messages(Repairs); len(got) > 0 {
		t.Errorf("repairs are %q", got)
	}
	for range 2 * maxOfKind {
		log.Info("leader changed")
	}
	if n := len(l.Newest(Elections)); n != maxOfKind {
		t.Errorf("%d elections are kept", n)
	}
}
