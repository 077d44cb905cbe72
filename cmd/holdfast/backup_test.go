package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/backup"
	"github.com/holdfast-ipfs/holdfast/cluster/node"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// backedUp is a node whose backup has these bytes.
type backedUp struct {
	fakeNode
	body []byte
	err  error
}

func (b *backedUp) Backup(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(b.body)), b.err
}

func someBackup(t *testing.T) []byte {
	t.Helper()
	return backupOf(t, "c1", time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC))
}

func backupOf(t *testing.T, clusterID string, at time.Time) []byte {
	t.Helper()
	var b bytes.Buffer
	h := &backup.Header{ClusterID: clusterID, Index: 42, Time: at, StateHash: state.Hash{1}, Secret: []byte("s"), ArchiveBytes: 7}
	if err := backup.Write(&b, h, func(w io.Writer) error { _, err := io.WriteString(w, "archive"); return err }); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// `backup` replaces a file only by a whole backup, which only its owner can read, and tells what it has. With - the
// backup alone goes to standard output.
func TestBackupReplacesAFileOnlyWhenItIsComplete(t *testing.T) {
	whole := someBackup(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "backup")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*backedUp{{body: whole[:len(whole)-1]}, {body: append(bytes.Clone(whole), 0)}, {body: []byte("x")}, {err: errors.New("no majority")}} {
		if got := call(t, n, "", "backup", path); got.code != exitFailure || got.out != "" || strings.Count(got.errOut, "\n") != 1 {
			t.Errorf("%d bytes: %+v", len(n.body), got)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != "old" {
			t.Fatalf("the file has %q, %v", data, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("files %v, %v", left, err)
		}
	}
	good := &backedUp{body: whole}
	got := call(t, good, "", "backup", path)
	if want := "backup of cluster c1 at index 42, " + humanBytes(len(whole)) + ", 2026-11-30T01:02:03Z\n"; got.code != exitOK || got.out != want || got.errOut != "" {
		t.Errorf("%+v, want %q", got, want)
	}
	info, err := os.Stat(path)
	if data, rerr := os.ReadFile(path); err != nil || rerr != nil || !bytes.Equal(data, whole) || info.Mode().Perm() != 0o600 {
		t.Errorf("%d bytes, %v, %v", len(data), info, err)
	}
	if got := call(t, good, "", "backup", "-"); got.code != exitOK || got.out != string(whole) || !strings.Contains(got.errOut, "index 42") {
		t.Errorf("%+v", got)
	}
	if got := call(t, good, "", "backup", path, "--json"); got.code != exitOK || !strings.Contains(got.out, `"state_hash": "01000`) {
		t.Errorf("%+v", got)
	}
}

// In a folder, backups have names of their own, and --keep deletes older ones of the same cluster and nothing else. A
// backup that fails deletes nothing.
func TestBackupsInAFolderAreKeptByNumber(t *testing.T) {
	dir := t.TempDir()
	files := func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	others := []string{
		".holdfast-backup.partial-2", "holdfast-c1-20260101T000000Z-7.backup.gz", "holdfast-c1-2026.backup", "holdfast-c1-20260101T000000Z.backup", "holdfast-c1-20260101T000000Z-x.backup",
		"holdfast-c10-20260101T000000Z-7.backup", "holdfast-c2-20260101T000000Z-7.backup", "notes",
	}
	for _, name := range append([]string{".holdfast-backup.partial-1"}, others...) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-partialAge - time.Minute)
	if err := os.Chtimes(filepath.Join(dir, ".holdfast-backup.partial-1"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "holdfast-c1-20250101T000000Z-7.backup"), 0o700); err != nil {
		t.Fatal(err)
	}
	others = append(others, "holdfast-c1-20250101T000000Z-7.backup")
	day := func(n int) time.Time { return time.Date(2026, 11, n, 1, 2, 3, 0, time.FixedZone("", 7200)) }
	named := func(n int) string { return "holdfast-c1-202611" + day(n).UTC().Format("02") + "T230203Z-42.backup" }

	for n := 11; n <= 13; n++ {
		got := call(t, &backedUp{body: backupOf(t, "c1", day(n))}, "", "backup", dir)
		if got.code != exitOK || !strings.Contains(got.out, "in "+filepath.Join(dir, named(n))+"\n") || strings.Contains(got.out, "deleted") {
			t.Fatalf("%+v", got)
		}
	}
	before := files()
	if got := call(t, &backedUp{body: someBackup(t)[1:]}, "", "backup", dir, "--keep", "1"); got.code != exitFailure {
		t.Errorf("%+v", got)
	}
	if now := files(); !slices.Equal(now, before) {
		t.Errorf("after a backup that failed: %v, before %v", now, before)
	}
	got := call(t, &backedUp{body: backupOf(t, "c1", day(14))}, "", "backup", dir+"/", "--keep", "2", "--json")
	var row writtenRow
	if err := json.Unmarshal([]byte(got.out), &row); err != nil || got.code != exitOK || row.ClusterID != "c1" || row.File != filepath.Join(dir, named(14)) ||
		!slices.Equal(row.Deleted, []string{filepath.Join(dir, named(12)), filepath.Join(dir, named(11))}) {
		t.Errorf("%+v, %v", got, err)
	}
	want := slices.Sorted(slices.Values(append([]string{named(13), named(14)}, others...)))
	if now := files(); !slices.Equal(now, want) {
		t.Errorf("files %v, want %v", now, want)
	}
	// A clock that went backwards does not make the command delete what it has just written.
	if got := call(t, &backedUp{body: backupOf(t, "c1", day(2))}, "", "backup", dir, "--keep", "1"); got.code != exitOK {
		t.Errorf("%+v", got)
	}
	want = slices.Sorted(slices.Values(append([]string{named(2)}, others...)))
	if now := files(); !slices.Equal(now, want) {
		t.Errorf("files %v, want %v", now, want)
	}
	if got := call(t, &backedUp{body: backupOf(t, "../c", day(2))}, "", "backup", dir); got.code != exitFailure || !strings.Contains(got.errOut, "cannot be part of a file name") {
		t.Errorf("%+v", got)
	}
}

// `restore` refuses what is no backup, and `recover` a folder that is not that of a member, with one line.
func TestRestoreAndRecoverSayWhatIsWrong(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("no backup"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"restore", path}, "no backup of Holdfast"},
		{[]string{"restore", "-"}, "no backup of Holdfast"},
		{[]string{"restore", filepath.Dir(path)}, "is a folder"},
		{[]string{"restore", path + "x"}, "no such file"},
		{[]string{"recover", "--i-lost-quorum"}, "not the data folder of a member"},
	} {
		got := call(t, &fakeNode{}, "no backup", append(tc.args, "--data", dir)...)
		if got.code != exitFailure || got.out != "" || !strings.Contains(got.errOut, tc.says) || strings.Count(got.errOut, "\n") != 1 {
			t.Errorf("%v: %+v", tc.args, got)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%v: the folder is there: %v", tc.args, err)
		}
	}
	if _, err := node.CheckBackup(bytes.NewReader(someBackup(t))); err != nil {
		t.Error(err)
	}
}

// Wrong usage of these commands exits with code 2 and one line that names what is wrong.
func TestWrongUsageOfBackupIsNamed(t *testing.T) {
	for _, tc := range []struct{ args, names string }{
		{"backup", "FILE"},
		{"backup - --json", "--json"},
		{"backup - --keep 2", "needs a folder"},
		{"backup . --keep 0", "--keep 0"},
		{"backup . --keep 10001", "--keep 10001"},
		{"restore", "FILE"},
		{"restore a b", `"b"`},
		{"recover", "--i-lost-quorum"},
		{"recover --i-lost-quorum now", `"now"`},
	} {
		isWrongUsage(t, tc.args, tc.names)
	}
}
