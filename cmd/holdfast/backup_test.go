package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
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
	var b bytes.Buffer
	h := &backup.Header{ClusterID: "c1", Index: 42, Time: time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC), StateHash: state.Hash{1}, Secret: []byte("s"), ArchiveBytes: 7}
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
		{"restore", "FILE"},
		{"restore a b", `"b"`},
		{"recover", "--i-lost-quorum"},
		{"recover --i-lost-quorum now", `"now"`},
	} {
		isWrongUsage(t, tc.args, tc.names)
	}
}
