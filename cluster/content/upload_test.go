package content

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// named returns files with these paths.
func named(paths ...string) NextFile {
	return func() (string, io.Reader, error) {
		if len(paths) == 0 {
			return "", nil, io.EOF
		}
		path := paths[0]
		paths = paths[1:]
		return path, strings.NewReader("x"), nil
	}
}

// An import that pins what it has stored protects it while the pin is in progress. If the pin cannot be made, the blocks
// are dropped and the import fails. If it is deleted before its content is on other nodes, the blocks are dropped too, so
// that nobody fills the disk with them. A folder with one entry is left out.
func TestAnImportPinsWhatItHasStored(t *testing.T) {
	refused := errors.New("refused")
	for name, run := range map[string]func(w *world, pin Pin) (Imported, error){
		"file": func(w *world, pin Pin) (Imported, error) {
			return w.AddPinned(t.Context(), strings.NewReader("x"), Layout{}, pin)
		},
		"files": func(w *world, pin Pin) (Imported, error) {
			return w.AddFilesPinned(t.Context(), named("a", "b"), Layout{}, pin)
		},
		"one file": func(w *world, pin Pin) (Imported, error) {
			return w.AddFilesPinned(t.Context(), named("a"), Layout{}, pin)
		},
		"car": func(w *world, pin Pin) (Imported, error) {
			car, err := w.ImportCARPinned(t.Context(), strings.NewReader("x"), pin)
			if err != nil {
				return Imported{}, err
			}
			return Imported{Root: car.Roots[0]}, nil
		},
	} {
		want := text
		if name == "one file" {
			want = other
		}
		for _, fail := range []error{nil, refused} {
			w := newWorld(t)
			var pinned []cid.Cid
			done, err := run(w, func(roots []cid.Cid, _ uint64) error {
				pinned = roots
				w.Sweep(t.Context())
				if len(w.store.references) != 1 {
					t.Errorf("%s: not protected while it is pinned", name)
				}
				if fail == nil {
					w.state.Apply(t, &state.CreatePin{Pin: state.Pin{ID: "1", Account: clustertest.Operator, Created: 1, CID: roots[0].String()}, Nodes: []state.NodeID{"a"}})
				}
				return fail
			})
			if !errors.Is(err, fail) || len(pinned) == 0 || pinned[0].String() != want {
				t.Errorf("%s: pinned %v, %v", name, pinned, err)
			}
			if fail == nil && done.Root.String() != want {
				t.Errorf("%s: the root is %v", name, done.Root)
			}
			w.Sweep(t.Context())
			if (len(w.store.references) == 1) != (fail == nil) {
				t.Errorf("%s: %v are protected after %v", name, w.store.references, err)
			}
			w.unpin(t)
			w.Sweep(t.Context())
			if len(w.store.references) > 0 {
				t.Errorf("%s: %v are protected after the pin was deleted", name, w.store.references)
			}
		}
	}
}
