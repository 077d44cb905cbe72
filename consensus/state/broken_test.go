package state

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ipfs/go-cid"
	"pgregory.net/rapid"
)

var errBroken = errors.New("the disk is gone")

// broken is a store in which one call fails.
type broken struct {
	*memory
	left int // calls before that
}

func (b *broken) fails() error {
	if b.left--; b.left == -1 {
		return errBroken
	}
	return nil
}

func (b *broken) Get(key []byte) ([]byte, bool, error) {
	if err := b.fails(); err != nil {
		return nil, false, err
	}
	return b.memory.Get(key)
}

func (b *broken) Set(key, value []byte) error {
	if err := b.fails(); err != nil {
		return err
	}
	return b.memory.Set(key, value)
}

func (b *broken) Delete(key []byte) error {
	if err := b.fails(); err != nil {
		return err
	}
	return b.memory.Delete(key)
}

func (b *broken) Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (bool, error)) error {
	if err := b.fails(); err != nil {
		return err
	}
	return b.memory.Scan(lower, upper, reverse, fn)
}

func (b *broken) Walk(lower, upper []byte, fn func(k, v []byte) (on []byte, more bool, err error)) error {
	if err := b.fails(); err != nil {
		return err
	}
	return b.memory.Walk(lower, upper, fn)
}

const never = 1 << 30

// Apply returns the error of the store, at whichever call the store fails. Otherwise a failed read would count as
// an absent row, and this node's state would differ from that of the others.
func TestNoErrorOfTheStoreIsPassedOver(t *testing.T) {
	most := 60 // calls of a command that are made to fail
	if testing.Short() {
		most = 10
	}
	random := rand.New(rand.NewPCG(1, 2))
	rapid.Check(t, func(rt *rapid.T) {
		m := found(rt)
		m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
		for step := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			cmd := anyCommand(rt, m)
			op := opOf(m.op + 1)
			whole := &broken{m.fork(), never}
			_, _ = Apply(whole, m.index+1, op, cmd, &Effects{}) // refused is as good
			calls := never - whole.left
			for at := range calls {
				if calls > most && random.IntN(calls) >= most {
					continue
				}
				if r, err := Apply(&broken{m.fork(), at}, m.index+1, op, cmd, &Effects{}); !errors.Is(err, errBroken) {
					rt.Fatalf("step %d, %T: call %d of %d failed, and the answer is %+v, %v", step, cmd, at, calls, r, err)
				}
			}
			_, err := m.apply(cmd)
			if refused := (*Error)(nil); err != nil && !errors.As(err, &refused) {
				rt.Fatal(err)
			}
		}
	})
}

// reads returns reads of a View that need no bucket, of a pin and of the root that it names.
func reads(ctx context.Context, p *Pin, c cid.Cid, k RootKey) map[string]func(View) error {
	return map[string]func(View) error{
		"account":         func(v View) error { _, err := v.Account(alice); return err },
		"by e-mail":       func(v View) error { _, err := v.AccountByEmail("alice@example.org"); return err },
		"accounts":        func(v View) error { _, err := v.Accounts(); return err },
		"keys":            func(v View) error { _, err := v.Keys(alice); return err },
		"buckets":         func(v View) error { _, err := v.Buckets(alice); return err },
		"checks":          func(v View) error { _, err := v.Checks(); return err },
		"quarantined":     func(v View) error { _, err := v.Quarantined(); return err },
		"fence":           func(v View) error { _, err := v.FenceOf("n1"); return err },
		"hash":            func(v View) error { _, err := v.Hash(func(int) error { return nil }); return err },
		"level":           func(v View) error { _, err := v.FeatureLevel(); return err },
		"node":            func(v View) error { _, err := v.Node("n1"); return err },
		"nodes":           func(v View) error { _, err := v.Nodes(); return err },
		"tickets":         func(v View) error { _, err := v.Tickets(); return err },
		"origins":         func(v View) error { _, err := v.Origins(k); return err },
		"pin":             func(v View) error { _, err := v.Pin(p.Account, p.ID); return err },
		"quota":           func(v View) error { _, err := v.Quota(p.Account); return err },
		"sessions":        func(v View) error { _, err := v.Sessions(alice); return err },
		"signing keys":    func(v View) error { _, err := v.SigningKeys(); return err },
		"short without":   func(v View) error { _, err := v.ShortWithout(func(n NodeID) bool { return n != "n1" }); return err },
		"unhashed":        func(v View) error { _, _, err := v.Unhashed(nil, 10); return err },
		"closing":         func(v View) error { _, err := v.Closing(10); return err },
		"emptying":        func(v View) error { _, err := v.Emptying(10); return err },
		"ended":           func(v View) error { _, err := v.Ended(10); return err },
		"turning":         func(v View) error { _, err := v.Turning(10); return err },
		"uploads before":  func(v View) error { _, err := v.UploadsBefore(maxCreated, 10); return err },
		"undated uploads": func(v View) error { _, err := v.UploadsUndated(maxCreated, 10); return err },
		"payment":         func(v View) error { _, err := v.Payment(testPayment("0x1").ID); return err },
		"payments":        func(v View) error { _, _, err := v.Payments(PaymentsQuery{Limit: 10}); return err },
		"payment sums":    func(v View) error { _, err := v.PaymentSums(); return err },
		"payments due":    func(v View) error { _, err := v.PaymentsDue(maxCreated); return err },
		"paid object":     func(v View) error { _, err := v.PaidObject("b/k"); return err },
		"members":         func(v View) error { _, err := v.Members(); return err },
		"cluster":         func(v View) error { _, err := v.Cluster(); return err },
		"root":            func(v View) error { _, err := v.Root(k); return err },
		"need":            func(v View) error { _, err := v.Need(); return err },
		"attached":        func(v View) error { _, err := v.AttachedAccounts(k, 10); return err },
		"settling":        func(v View) error { _, err := v.Settling(10); return err },
		"short":           func(v View) error { _, err := v.Short(10); return err },
		"is short":        func(v View) error { _, err := v.IsShort(k); return err },
		"surplus since":   func(v View) error { _, err := v.SurplusSince(k); return err },
		"totals":          func(v View) error { _, _, err := v.Totals(); return err },
		"copies":          func(v View) error { _, _, err := v.CopiesOn("n1"); return err },
		"names": func(v View) error {
			root, err := v.Root(k)
			if err == nil {
				_, err = v.Names("nobody", &root)
			}
			return err
		},
		"enough": func(v View) error {
			root, err := v.Root(k)
			if err == nil {
				_, err = v.Enough(&root)
			}
			return err
		},
		"wanted": func(v View) error {
			return v.WantedOn("n1", "", func(RootKey, Phase) (bool, error) { return true, nil })
		},
		"roots":   func(v View) error { return v.Roots("", func(Root) (bool, error) { return true, nil }) },
		"surplus": func(v View) error { return v.Surplus("", func(Root) (bool, error) { return true, nil }) },
		"lacking": func(v View) error { return v.Lacking("", func(Root) (bool, error) { return true, nil }) },
		"list":    func(v View) error { _, _, err := v.ListPins(ctx, p.Account, PinQuery{Limit: 10}); return err },
		"list by cid": func(v View) error {
			_, _, err := v.ListPins(ctx, p.Account, PinQuery{Limit: 10, CIDs: []cid.Cid{c}})
			return err
		},
		"list by name": func(v View) error {
			_, _, err := v.ListPins(ctx, p.Account, PinQuery{Limit: 10, Name: "alpha"})
			return err
		},
		"list by a part": func(v View) error {
			_, _, err := v.ListPins(ctx, p.Account, PinQuery{Limit: 10, Name: "lph", Match: IPartial, Statuses: Statuses(), After: 5, Before: maxCreated})
			return err
		},
		"a new pin": func(v View) error {
			_, err := v.Judge(&ByKey{Change: &CreatePin{Pin: Pin{ID: "new", Account: p.Account, CID: p.CID, Created: 7}}})
			return err
		},
	}
}

// RaiseLevel returns the error of the store, at whichever call the store fails and for every feature level.
// Raising a level writes rows that the level before did not have.
func TestNoErrorIsPassedOverWhereALevelIsRaised(t *testing.T) {
	m := found(t)
	m.must(&CreatePin{Pin: Pin{ID: "early", Account: bob, CID: contents[0], Created: 1}, Nodes: []NodeID{"n1"}})
	for level := FeatureLevel(1); level <= NewestFeatureLevel; level++ {
		raise := &RaiseLevel{FeatureLevel: level}
		for at, whole := 0, false; !whole; at++ {
			b := &broken{m.fork(), at}
			_, err := Apply(b, m.index+1, opOf(m.op+1), raise, &Effects{})
			if whole = b.left >= 0; !whole && !errors.Is(err, errBroken) {
				t.Fatalf("level %d: call %d failed, and the answer is %v", level, at, err)
			}
		}
		m.must(raise)
	}
}

// Each read of a View in reads returns the error of the store, at whichever call the store fails.
func TestNoErrorIsPassedOverByWhoReads(t *testing.T) {
	m := crowd(t, rand.New(rand.NewPCG(3, 4)), 60, 0)
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	pins := m.allPins()
	p := pins[len(pins)/2]
	c, err := cid.Decode(p.CID)
	if err != nil {
		t.Fatal(err)
	}
	k := rootOf(t, p.CID)
	for name, read := range reads(t.Context(), &p, c, k) {
		t.Run(name, func(t *testing.T) {
			whole := &broken{m.memory, never}
			first := read(NewView(whole, m.index))
			calls := never - whole.left
			if calls == 0 {
				t.Fatalf("nothing is read: %v", first)
			}
			for at := range calls {
				if err := read(NewView(&broken{m.memory, at}, m.index)); !errors.Is(err, errBroken) {
					t.Fatalf("call %d of %d failed, and the answer is %s", at, calls, fmt.Sprint(err))
				}
			}
		})
	}
}

// If the store has lost the row of a pin, View.Pin returns an error that is not ErrNotFound.
func TestAPinWithoutItsRowIsAnError(t *testing.T) {
	m := found(t)
	if err := m.create(alice, "p", contents[0]); err != nil {
		t.Fatal(err)
	}
	at, err := locate(m.memory, alice, "p")
	if err != nil || at == nil {
		t.Fatal(at, err)
	}
	if err := m.Delete(rowKey(at)); err != nil {
		t.Fatal(err)
	}
	if p, err := m.view().Pin(alice, "p"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("%+v, %v", p, err)
	}
}

// View.Names is true for an account that has a pin, an object or a part of the root, and for no other account.
func TestWhoNamesARoot(t *testing.T) {
	s := shelved(t, Unlimited)
	if err := s.create(alice, "p", contents[0]); err != nil {
		t.Fatal(err)
	}
	s.must(s.putOf("k", "v", contents[2]))
	s.must(s.begin("film", "up"))
	s.must(s.partOf("film", "up", 1, "part", contents[4]))
	if err := s.create(alice, "both", contents[4]); err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string][2]bool{contents[0]: {true, false}, contents[2]: {false, true}, contents[4]: {true, true}} {
		root, err := s.view().Root(rootOf(t, content))
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range []AccountID{alice, bob, "nobody"} {
			if got, err := s.view().Names(a, &root); err != nil || got != (i < 2 && want[min(i, 1)]) {
				t.Errorf("%s names %s: %v, %v", a, content, got, err)
			}
		}
	}
}
