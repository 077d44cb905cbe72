package state

import (
	"fmt"
	"testing"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// another returns the CID of some content.
func another(t reporter, name string) string {
	t.Helper()
	hash, err := multihash.Sum([]byte(name), multihash.SHA2_256, -1)
	if err != nil {
		t.Fatal(err)
	}
	return cid.NewCidV1(cid.Raw, hash).String()
}

// stored returns how much content of an account's is kept whoever is charged for it.
func (m *machine) stored() (bytes uint64) {
	m.t.Helper()
	for _, r := range m.allRoots() {
		bytes += r.Size
	}
	return bytes
}

// However many replacements never come, at most twice the allowance is kept for an account. When they are deleted
// or have failed, nothing is.
func TestReplacementsThatNeverComeKeepLittle(t *testing.T) {
	const allowance = 25
	m := rich(t, allowance)
	for i := range 20 {
		old, next := RequestID(fmt.Sprint("old", i)), RequestID(fmt.Sprint("next", i))
		content := another(t, string(old))
		m.must(create(bob, old, content))
		m.hold(rootOf(t, content))
		m.must(replace(bob, old, next, another(t, string(next))))
		m.check()
		if got := m.stored(); got > 2*allowance {
			t.Fatalf("%d bytes are kept for an allowance of %d after %d replacements", got, allowance, i+1)
		}
	}
	if q := m.quota(bob); q.Retained != 20 || q.Used() != 0 {
		t.Errorf("%+v", q)
	}
	for i := range 20 {
		next := RequestID(fmt.Sprint("next", i))
		switch root := rootOf(t, another(t, string(next))); i % 3 {
		case 0:
			m.giveUp(root, "nobody has it")
		default:
			m.must(&DeletePin{Account: bob, ID: next})
		}
		m.check()
	}
	if q := m.quota(bob); q.Retained != 0 || m.stored() != 0 {
		t.Errorf("in the end %d bytes are kept, %+v", m.stored(), q)
	}
}

// Replaced content is kept as far as the allowance goes, and one content is kept however small the allowance is.
func TestWhatFitsIntoTheAllowanceStaysUntilItIsReplaced(t *testing.T) {
	for _, tc := range []struct {
		name      string
		allowance uint64
		then      Command
		want      uint64
	}{
		{"all fit", 40, &SetQuota{Account: bob, Allowance: 40}, 40},
		{"no limit", Unlimited, &SetQuota{Account: bob, Allowance: Unlimited}, 40},
		{"a smaller allowance by now", 40, &SetQuota{Account: bob, Allowance: 0}, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := rich(t, tc.allowance)
			for i := range 4 {
				id := fmt.Sprint("old", i)
				m.must(create(bob, RequestID(id), another(t, id)))
				m.hold(rootOf(t, another(t, id)))
			}
			m.must(tc.then)
			for i := range 4 {
				next := fmt.Sprint("next", i)
				m.must(replace(bob, RequestID(fmt.Sprint("old", i)), RequestID(next), another(t, next)))
				m.check()
			}
			if q := m.quota(bob); q.Retained != tc.want || m.stored() != tc.want {
				t.Errorf("%d bytes are kept, want %d; %+v", m.stored(), tc.want, q)
			}
		})
	}
}

// wantRetained writes the guards of roots, and compares what they keep for accounts. It returns
// how many each root has.
func (m *machine) wantRetained(want *memory, roots []Root) map[RootKey]uint64 {
	m.t.Helper()
	guards := map[RootKey]uint64{}
	sums := map[AccountID]uint64{}
	for i := range roots {
		r := &roots[i]
		olds, err := retainedBy(m, r.Key)
		if err != nil {
			m.t.Fatal(err)
		}
		if len(olds) > 0 && r.settled() {
			m.t.Errorf("root %s is %s and still guards %d", r.Key, r.Status, len(olds))
		}
		for _, old := range olds {
			guards[old]++
			kept, err := retainedAt(m, old, r.Key)
			if err != nil {
				m.t.Fatal(err)
			}
			sums[kept.Account] += kept.Bytes
			if err := put(want, retainedKey(old, r.Key), kept); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	for _, a := range []AccountID{alice, bob} {
		if q, err := get[Quota](m, quotaKey(a)); err != nil {
			m.t.Fatal(err)
		} else if q != nil && q.Retained != sums[a] {
			m.t.Errorf("%d bytes are guarded for %s, by the guards %d", q.Retained, a, sums[a])
		}
	}
	return guards
}
