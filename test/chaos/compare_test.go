package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
	"github.com/holdfast-ipfs/holdfast/storage/raftlog"
)

// row is one key of the state and its value.
type row struct{ key, value string }

// compareNodes reads the folders of the nodes, which have ended: all hold the
// same state, and each the content that it says it holds.
func (r *run) compareNodes(ctx context.Context, got *report) error {
	var first []row
	for i, m := range r.cluster.members {
		rows, err := r.examine(ctx, m, got)
		if err != nil {
			return fmt.Errorf("node %d: %w", i+1, err)
		}
		if i == 0 {
			first = rows
			continue
		}
		for at := range max(len(first), len(rows)) {
			var one, other row
			if at < len(first) {
				one = first[at]
			}
			if at < len(rows) {
				other = rows[at]
			}
			if one != other {
				return fmt.Errorf("the states of nodes 1 and %d differ: %x is %x, and %x is %x", i+1, one.key, one.value, other.key, other.value)
			}
		}
	}
	return nil
}

// examine returns everything in a node's state, after it has looked for the
// content that the state says is there.
func (r *run) examine(ctx context.Context, m *member, got *report) (rows []row, err error) {
	store, err := kv.Open(filepath.Join(m.folder, "state"), kv.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	content, err := blocks.Open(filepath.Join(m.folder, "blocks"), blocks.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	view := store.View()
	defer view.Close()
	err = view.Scan(nil, nil, false, func(key, value []byte) (bool, error) {
		rows = append(rows, row{string(key), string(value)})
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	s := state.NewView(view, 0)
	if err := r.holds(ctx, s, m.number, content); err != nil {
		return nil, err
	}
	if m.number > 0 {
		return rows, nil
	}
	if err := r.market.check(ctx, s, got); err != nil {
		return nil, err
	}
	if err := r.books.check(s, got); err != nil {
		return nil, err
	}
	return rows, r.count(ctx, s, got)
}

// holds reads whole every file that the state says this node holds.
func (r *run) holds(ctx context.Context, s state.View, number int, content *blocks.Store) error {
	return s.Roots("", func(root state.Root) (bool, error) {
		for _, c := range root.Copies {
			if at, known := r.cluster.ids[c.Node]; c.Phase != state.Held || !known || at != number {
				continue
			}
			want, known := r.library.bytes[root.Key.Cid().String()]
			if !known {
				return false, fmt.Errorf("root %s is nothing that was pinned", root.Key)
			}
			file, err := dag.Open(ctx, content, root.Key.Cid())
			if err != nil {
				return false, fmt.Errorf("root %s is not here: %w", root.Key, err)
			}
			have, err := io.ReadAll(file)
			if err = errors.Join(err, file.Close()); err != nil {
				return false, fmt.Errorf("root %s is not whole: %w", root.Key, err)
			}
			if !bytes.Equal(have, want) {
				return false, fmt.Errorf("root %s has other bytes", root.Key)
			}
		}
		return true, nil
	})
}

// terms returns how many terms of Raft there were after that of the first leader.
func (r *run) terms() (terms uint64, err error) {
	for _, m := range r.cluster.members {
		log, err := raftlog.Open(filepath.Join(m.folder, "raft", "raft.db"))
		if err != nil {
			return 0, err
		}
		term, err := log.GetUint64([]byte("CurrentTerm")) // Raft's name for it
		if err = errors.Join(err, log.Close()); err != nil {
			return 0, err
		}
		terms = max(terms, term)
	}
	return terms - min(terms, firstTerm), nil
}

// firstTerm is the term in which a new cluster's first leader leads: Raft's
// founding is term 1.
const firstTerm = 2

// count counts the pins, and checks that who holds a pinned one is on record.
func (r *run) count(ctx context.Context, s state.View, got *report) error {
	need, err := s.Need()
	if err != nil {
		return err
	}
	pinned := map[string]bool{}
	err = s.Roots("", func(root state.Root) (bool, error) {
		pinned[root.Key.Cid().String()] = root.In(state.Held) >= need
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, t := range r.tenants {
		for q := (state.PinQuery{Limit: 1000}); ; {
			_, page, err := s.ListPins(ctx, t.id, q)
			if err != nil {
				return err
			}
			if len(page) == 0 {
				break
			}
			for _, p := range page {
				got.Pins++
				if p.Status == state.Pinned {
					got.Pinned++
					if !pinned[p.CID] {
						return fmt.Errorf("pin %s is pinned, and fewer than %d nodes hold %s", p.Name, need, p.CID)
					}
				}
				q.Before = p.Created
			}
		}
	}
	return nil
}
