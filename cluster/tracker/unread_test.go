package tracker

import (
	"errors"
	"testing"

	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

var errUnread = errors.New("the disk fails")

// unread is a state that cannot be read here.
type unread struct{ State }

func (unread) LocalView() (state.View, func()) { return state.NewView(unreadable{}, 1), func() {} }

type unreadable struct{}

func (unreadable) Get([]byte) ([]byte, bool, error) { return nil, false, errUnread }

func (unreadable) Scan([]byte, []byte, bool, func(k, v []byte) (bool, error)) error { return errUnread }

// TestAStateThatCannotBeReadNamesNoRoots promises that roots whose leases have ended are not
// taken for unwanted when the state cannot be read.
func TestAStateThatCannotBeReadNamesNoRoots(t *testing.T) {
	tr := &Tracker{opts: Options{State: unread{}, Self: "a"}}
	k := state.RootOf(cid.MustParse("bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"))
	if loose, err := tr.loose([]state.RootKey{k}); len(loose) != 0 || !errors.Is(err, errUnread) {
		t.Errorf("%v, %v", loose, err)
	}
}
