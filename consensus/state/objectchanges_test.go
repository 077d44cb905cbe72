package state

import (
	"fmt"
	"slices"
	"testing"
)

// A Watch keeps the newest changes of objects of each account, one of each key, and a bounded number of
// changes and accounts.
func TestWatchKeepsTheNewestChangesOfObjects(t *testing.T) {
	var w Watch
	change := func(account AccountID, key string, deleted bool) {
		w.Publish(1, &Effects{Objects: []ObjectChange{{account, "photos", key, 7, deleted}}})
	}
	keys := func(account AccountID) (all []string) {
		for _, c := range w.ObjectChanges(account) {
			all = append(all, fmt.Sprintf("%s %v", c.Key, c.Deleted))
		}
		return all
	}
	if len(keys("alice")) > 0 {
		t.Errorf("changes of nobody: %q", keys("alice"))
	}
	change("alice", "a", false)
	change("bob", "b", false)
	change("alice", "c", false)
	change("alice", "a", true)
	if got := keys("alice"); !slices.Equal(got, []string{"a true", "c false"}) {
		t.Errorf("the changes are %q", got)
	}
	for i := range 2 * maxRecentChanges {
		change("alice", fmt.Sprint(i), false)
	}
	if got := keys("alice"); len(got) != maxRecentChanges || got[0] != fmt.Sprint(2*maxRecentChanges-1, " false") {
		t.Errorf("of many changes %q are kept", got)
	}
	for i := range maxRecentAccounts {
		if change(AccountID(fmt.Sprint("account ", i)), "k", false); i == maxRecentAccounts/2 {
			change("alice", "late", false)
		}
	}
	if n := len(w.recent.younger) + len(w.recent.old); n > maxRecentAccounts {
		t.Errorf("changes of %d accounts are kept", n)
	}
	if len(keys("bob")) > 0 || len(keys("alice")) != maxRecentChanges || keys("alice")[0] != "late false" {
		t.Errorf("after changes of many accounts bob has %q and alice %q", keys("bob"), keys("alice"))
	}
	w.Replace(2)
	if len(keys("alice")) > 0 {
		t.Errorf("after the state was replaced alice has %q", keys("alice"))
	}
}

// Each command that gives a key another current object, or takes it away, says so with its time, and a
// command that fails, or is repeated, says nothing.
func TestCommandsTellChangesOfObjects(t *testing.T) {
	s := shelved(t, 1<<20)
	told := func(what string, want ...ObjectChange) {
		t.Helper()
		for i := range want {
			want[i].Account, want[i].Bucket = bob, "bucket"
		}
		if got := s.fx.Objects; !slices.Equal(got, want) {
			t.Errorf("%s tells %+v, not %+v", what, got, want)
		}
	}
	del := func(at Millis, id VersionID, keys ...string) *DeleteObjects {
		d := &DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: keys, Marker: VersionID(fmt.Sprint("marker", at)), Created: at}
		if id != "" {
			d.IDs = []VersionID{id}
		}
		return d
	}
	put := s.putOf("k", "v1", contents[1])
	s.must(put)
	told("a put", ObjectChange{Key: "k", At: 5})
	s.must(put)
	told("a put that was made already")
	late := s.putOf("k", "v2", contents[1])
	late.If = Condition{Absent: true}
	s.refused(late, ErrPrecondition)
	told("a put that is refused")
	s.must(del(7, "", "absent", "k"))
	told("a deletion", ObjectChange{Key: "k", At: 7, Deleted: true})
	s.must(&SetVersioning{Account: bob, Bucket: "bucket", Born: s.b.Born, Versioning: Versioned})
	told("another setting")
	for _, id := range []VersionID{"v3", "v4"} {
		s.must(s.putOf("k", id, contents[1]))
	}
	s.must(del(20, "", "k"))
	told("a delete marker", ObjectChange{Key: "k", At: 20, Deleted: true})
	s.must(del(21, "", "k"))
	told("a marker of a deleted object")
	s.must(del(22, "v3", "k"))
	told("the removal of an older version")
	s.must(del(23, "marker21", "k"))
	told("the removal of one marker of two")
	s.must(del(24, "marker20", "k"))
	told("the removal of the last marker", ObjectChange{Key: "k", At: 24})
	s.must(del(25, "v4", "k"))
	told("the removal of the current version", ObjectChange{Key: "k", At: 25, Deleted: true})
}
