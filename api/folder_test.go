package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

const folderCID = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"

// folders is a node with one folder.
type folders struct {
	*node
	added string
	as    content.Layout
	texts []string // what was opened
	fails error    // in the middle of the folder
	empty bool     // the failure comes before the first byte
}

func (f *folders) AddFolder(_ context.Context, r io.Reader, as content.Layout) (content.Imported, error) {
	data, err := io.ReadAll(r)
	f.added, f.as = string(data), as
	c := cid.MustParse(folderCID)
	return content.Imported{Root: c, Size: 5, Entries: []content.Entry{{Name: "ü", CID: c}}}, err
}

func (f *folders) Open(_ context.Context, text string) (io.ReadSeekCloser, uint64, error) {
	return nil, 0, fmt.Errorf("%w: %w", state.Errorf(state.CodeInvalid, "%s is a folder", text), content.ErrFolder)
}

func (f *folders) OpenFor(ctx context.Context, _ state.AccountID, text string) (io.ReadSeekCloser, uint64, error) {
	return f.Open(ctx, text)
}

func (f *folders) OpenFolder(_ context.Context, text string) (content.Folder, error) {
	f.texts = append(f.texts, text)
	return f, nil
}

func (f *folders) OpenFolderFor(ctx context.Context, account state.AccountID, text string) (content.Folder, error) {
	return f.OpenFolder(ctx, string(account)+" "+text)
}

func (f *folders) WriteTar(_ context.Context, w io.Writer) error {
	if f.empty {
		return f.fails
	}
	_, err := io.WriteString(w, f.added)
	return errors.Join(err, f.fails)
}

func (*folders) Close() error { return nil }

// A folder passes through the socket in both directions, with its layout, its entries, and a path of any letters. The
// client learns why a folder ends early, and never takes a part of it for the whole.
func TestFoldersPassThroughTheSocket(t *testing.T) {
	n := newNode(t)
	f := &folders{node: n}
	n.opts.Files = f
	n.run(t)
	c := n.client(t)
	ctx := t.Context()
	stream := strings.Repeat("a folder ", 100_000)
	added, err := c.Import(ctx, strings.NewReader(stream), client.Import{Folder: true, Entries: true, Hash: "sha2-256", CIDVersion: "0"})
	if err != nil || added.CID != folderCID || added.Size != 5 || len(added.Entries) != 1 || added.Entries[0] != (client.ContentEntry{Name: "ü", CID: folderCID}) {
		t.Fatalf("%+v, %v", added, err)
	}
	if f.added != stream || f.as != (content.Layout{Hash: "sha2-256", CIDVersion: "0"}) {
		t.Errorf("%d bytes as %+v", len(f.added), f.as)
	}
	if added, err := c.Import(ctx, strings.NewReader(stream), client.Import{Folder: true}); err != nil || added.Entries != nil {
		t.Errorf("%+v, %v", added, err)
	}
	if _, _, err := c.OpenContent(ctx, "", folderCID); err == nil || err.Error() != folderCID+" is a folder" {
		t.Errorf("a folder as a file: %v", err)
	}
	read := func(text string) (string, error) {
		t.Helper()
		opened, err := c.OpenFileOrFolder(ctx, "", text)
		if err != nil {
			return "", err
		}
		defer opened.Body.Close()
		if !opened.Folder {
			t.Error("no folder")
		}
		data, err := io.ReadAll(opened.Body)
		return string(data), err
	}
	if got, err := read(folderCID + "/ü/a b%20c/?x"); err != nil || got != stream || f.texts[0] != folderCID+"/ü/a b%20c/?x" {
		t.Errorf("%d bytes of %q, %v", len(got), f.texts, err)
	}
	f.fails = state.Errorf(state.CodeUnavailable, "the members of %q\nare away: 100%%", "ü")
	if got, err := read(folderCID); err == nil || got != stream || !strings.Contains(err.Error(), "the members of \"ü\"\nare away: 100%") {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	f.empty = true
	if _, err := read(folderCID); err == nil || !strings.HasPrefix(err.Error(), "the members of") {
		t.Errorf("a failure before the first byte: %v", err)
	}
	f.empty, f.fails = false, nil
	broken := io.MultiReader(bytes.NewReader(make([]byte, 5_000)), errorReader{})
	if _, err := c.Import(ctx, broken, client.Import{Folder: true}); err == nil {
		t.Error("a stream that breaks off is added")
	}
}
