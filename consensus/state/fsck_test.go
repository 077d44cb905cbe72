package state

import "testing"

// fsck returns what Fsck finds in the machine's store.
func (m *machine) fsck(limit int) Fsck {
	m.t.Helper()
	found, err := m.view().Fsck(limit, func(int) error { return nil })
	if err != nil {
		m.t.Fatal(err)
	}
	return found
}

// wantSound wants Fsck to find no difference.
func (m *machine) wantSound() {
	m.t.Helper()
	found := m.fsck(10)
	for _, d := range found.Differences {
		m.t.Errorf("fsck: %s", d)
	}
	if rows := m.txn.CommitOnly().Len(); found.Rows != uint64(rows) {
		m.t.Errorf("fsck read %d rows of %d", found.Rows, rows)
	}
}

var _ = testing.Short
