package state

import (
	"errors"
	"strings"
)

// leftOver returns the commands that go on with what entries had no room for, as the leader
// proposes them.
func (m *machine) leftOver() (all []Command) {
	m.t.Helper()
	roots, rootsErr := m.view().Settling(10)
	buckets, bucketsErr := m.view().Emptying(10)
	uploads, uploadsErr := m.view().Ended(10)
	turning, turningErr := m.view().Turning(10)
	closing, closingErr := m.view().Closing(10)
	index, _, _, indexErr := m.view().PinsToIndex()
	pack, _, _, packErr := m.view().NamesToPack()
	if err := errors.Join(rootsErr, bucketsErr, uploadsErr, turningErr, closingErr, indexErr, packErr); err != nil {
		m.t.Fatal(err)
	}
	if len(roots) > 0 {
		all = append(all, &SettleRoots{Roots: roots})
	}
	if len(buckets) > 0 {
		all = append(all, &ClearBuckets{Items: buckets})
	}
	if len(uploads) > 0 {
		all = append(all, &ClearUploads{Items: uploads})
	}
	if len(turning) > 0 {
		all = append(all, &TurnBuckets{Items: turning})
	}
	if len(closing) > 0 {
		all = append(all, &ClearAccounts{Accounts: closing})
	}
	if index != nil { // says where it is, by the name of an account
		all = append(all, index)
	}
	if pack != nil {
		all = append(all, pack)
	}
	return all
}

// wantNothingOf wants no key and no record of an account, but for what its replaced pins
// leave while others wait for what replaced them.
func (m *machine) wantNothingOf(a AccountID) {
	m.t.Helper()
	name := string(part(nil, a))
	for _, r := range m.rows() {
		if r.key[0] == tableAudit {
			continue // what was done to the account stays on record
		}
		if strings.Contains(r.key, name) || r.key[0] != tableRetained && strings.Contains(r.value, string(a)) {
			m.t.Errorf("the account is closed and cleared, and there is %q = %q", r.key, r.value)
		}
	}
}
