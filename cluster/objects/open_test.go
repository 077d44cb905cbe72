package objects

import (
	"errors"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Open fails with ErrUnavailable if the content of an object cannot be reached, and with ErrNotFound only if the
// object is gone. A client that syncs would take ErrNotFound for a deletion.
func TestContentThatNobodyReachesIsUnavailable(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	obj := w.put("bkt", "k", "body")
	delete(w.content, obj.Root.Cid())
	if _, err := w.objects.Open(t.Context(), w.account, &obj); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("an object that is there: %v", err)
	}
	if _, err := w.objects.Delete(t.Context(), w.account, "bkt", "k", "", state.Condition{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.objects.Open(t.Context(), w.account, &obj); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("one that is not: %v", err)
	}
}

// unread is a state that cannot be read here.
type unread struct{ State }

func (unread) LocalView() (state.View, func()) { return state.NewView(unreadable{}, 1), func() {} }

var errUnread = errors.New("the disk fails")

type unreadable struct{}

func (unreadable) Get([]byte) ([]byte, bool, error) { return nil, false, errUnread }

func (unreadable) Scan([]byte, []byte, bool, func(k, v []byte) (bool, error)) error { return errUnread }

// Open fails with ErrUnavailable, not with ErrNotFound, if content is not found and the state cannot be read. Tools
// take 404 for an object that was deleted.
func TestContentIsNotGoneWhileTheStateCannotBeRead(t *testing.T) {
	w := newWorld(t)
	w.bucket("bkt")
	obj := w.put("bkt", "k", "hello")
	w.objects.opts.Files = &files{Files: w, err: state.ErrNotFound}
	w.objects.opts.State = unread{w.state}
	if _, err := w.objects.Open(t.Context(), w.account, &obj); !errors.Is(err, state.ErrUnavailable) {
		t.Errorf("answered %v", err)
	}
}
