package clustertest

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// ending is a test whose end is looked at.
type ending struct {
	testing.TB
	ends   []func()
	failed []string
}

func (e *ending) Helper()           {}
func (e *ending) Cleanup(fn func()) { e.ends = append(e.ends, fn) }
func (e *ending) Errorf(format string, args ...any) {
	e.failed = append(e.failed, fmt.Sprintf(format, args...))
}

// end runs what belongs to the end, the youngest first, and returns how it failed.
func (e *ending) end() []string {
	for i := len(e.ends) - 1; i >= 0; i-- {
		e.ends[i]()
	}
	return e.failed
}

// A test that leaves a view open fails once for each view, and the failure names the file that opened it.
func TestAViewLeftOpenFailsTheTest(t *testing.T) {
	for _, c := range []struct {
		name string
		use  func(tb testing.TB, s *State)
		open int
	}{
		{"none", func(testing.TB, *State) {}, 0},
		{"released", func(_ testing.TB, s *State) { _, release := s.LocalView(); release() }, 0},
		{"left open", func(_ testing.TB, s *State) { s.LocalView() }, 1},
		{"released twice, the other left open", func(_ testing.TB, s *State) {
			_, release := s.LocalView()
			s.LocalView()
			release()
			release()
		}, 1},
		{"released a little later by another goroutine", func(_ testing.TB, s *State) {
			_, release := s.LocalView()
			time.AfterFunc(releaseTimeout/2, release)
		}, 0},
		{"linearizable", func(_ testing.TB, s *State) {
			if _, _, err := s.View(t.Context()); err != nil {
				t.Error(err)
			}
		}, 1},
		{"lagging", func(tb testing.TB, s *State) { _, release := NewLagging(tb, s).LocalView(); release() }, 0},
		{"lagging, left open", func(tb testing.TB, s *State) { NewLagging(tb, s).LocalView() }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &ending{TB: t}
				c.use(e, New(e, Setup{Nodes: Members("n1")}))
				failed := e.end()
				if len(failed) != c.open {
					t.Fatalf("%d failures of %d: %q", len(failed), c.open, failed)
				}
				for _, f := range failed {
					if !strings.Contains(f, "views_test.go") {
						t.Errorf("does not name who left it open: %s", f)
					}
				}
			})
		})
	}
}
