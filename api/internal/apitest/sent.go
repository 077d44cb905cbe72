package apitest

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// Sent stores uploads in memory. The root of a file is that of its bytes, and the root of a folder and
// of a CAR is that of all bytes in them. A CAR that begins with "bad" is invalid, and one that begins
// with "two" has two roots.
type Sent struct {
	mu    sync.Mutex
	files map[string]string
	as    content.Layout
}

// Files returns the stored files by their paths, and their layout. A file without a path and a CAR have
// the path "".
func (s *Sent) Files() (map[string]string, content.Layout) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files, s.as
}

// AddPinned implements uploads.Content.
func (s *Sent) AddPinned(ctx context.Context, r io.Reader, as content.Layout, pin content.Pin) (content.Imported, error) {
	first := true
	return s.AddFilesPinned(ctx, func() (string, io.Reader, error) {
		if !first {
			return "", nil, io.EOF
		}
		first = false
		return "", r, nil
	}, as, pin)
}

// AddFolderPinned implements uploads.Content. It stores the stream as one file.
func (s *Sent) AddFolderPinned(ctx context.Context, r io.Reader, as content.Layout, pin content.Pin) (content.Imported, error) {
	done, err := s.AddPinned(ctx, r, as, pin)
	done.Entries = []content.Entry{{Name: "a.txt", CID: done.Root}}
	return done, err
}

// AddFilesPinned implements uploads.Content.
func (s *Sent) AddFilesPinned(_ context.Context, next content.NextFile, as content.Layout, pin content.Pin) (content.Imported, error) {
	files, all := map[string]string{}, ""
	for {
		path, r, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return content.Imported{}, err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return content.Imported{}, err
		}
		files[path] = string(data)
		all += string(data)
	}
	return s.store(files, as, all, pin, rootOf(all))
}

// ImportCARPinned implements uploads.Content.
func (s *Sent) ImportCARPinned(_ context.Context, r io.Reader, pin content.Pin) (content.CAR, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return content.CAR{}, err
	}
	text := string(data)
	roots := []cid.Cid{rootOf(text)}
	switch {
	case len(text) >= 3 && text[:3] == "bad":
		return content.CAR{}, state.Errorf(state.CodeInvalid, "this is no CAR")
	case len(text) >= 3 && text[:3] == "two":
		roots = append(roots, rootOf(text+"2"))
	}
	done, err := s.store(map[string]string{"": text}, content.Layout{}, text, pin, roots...)
	return content.CAR{Roots: roots, Bytes: done.Size}, err
}

func (s *Sent) store(files map[string]string, as content.Layout, all string, pin content.Pin, roots ...cid.Cid) (content.Imported, error) {
	if err := pin(roots, uint64(len(all))); err != nil {
		return content.Imported{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files, s.as = files, as
	return content.Imported{Root: roots[0], Size: uint64(len(all))}, nil
}

func rootOf(text string) cid.Cid {
	c, err := cid.V1Builder{Codec: cid.Raw, MhType: multihash.SHA2_256}.Sum([]byte(text))
	if err != nil {
		panic(err) // the hash is known
	}
	return c
}
