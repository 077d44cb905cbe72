package state

import (
	"slices"
	"testing"
)

// Nodes are notified of a root whenever its content becomes private and whenever that ends. They show and hide the
// content by that.
func TestWhatBecomesPrivateIsTold(t *testing.T) {
	s := shelved(t, Unlimited)
	a, b := rootOf(t, contentA), rootOf(t, contentB)
	private := false
	step := func(what string, cmd Command, want bool) {
		t.Helper()
		s.must(cmd)
		root, err := s.view().Root(a)
		if err != nil || root.Private() != want {
			t.Fatalf("%s: %+v, %v, want private %v", what, root, err, want)
		}
		told := slices.ContainsFunc(s.fx.Roots, func(r RootChange) bool { return r.Root == a && len(r.Nodes) > 0 })
		if want != private && !told {
			t.Errorf("%s: nobody hears that it is private: %v", what, want)
		}
		private = want
	}
	drop := &DeleteObjects{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Keys: []string{"k"}}
	s.must(create(alice, "p1", contentA))
	s.hold(a)
	step("an object of what is pinned", s.putOf("k", "v1", contentA), false)
	step("the last pin goes", &DeletePin{Account: alice, ID: "p1"}, true)
	step("a pin comes", create(alice, "p2", contentA), false)
	step("the object goes", drop, false)
	step("the pin is replaced, and waits", replace(alice, "p2", "p3", contentB), false)
	step("an object of what waits", s.putOf("k", "v2", contentA), true)
	step("the object goes again", drop, false)
	step("an object again", s.putOf("k", "v3", contentA), true)
	s.hold(b)
	if root, err := s.view().Root(a); err != nil || !root.Private() || root.Retainers != 0 {
		t.Errorf("after the replacement: %+v, %v", root, err)
	}
	if s.must(drop); s.kept(a) {
		t.Error("nothing names it, and it is kept")
	}
}
