package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// TarType is the media type of a folder. A client that sends a folder, or that accepts one, names it in
// Content-Type or Accept.
const TarType = web.TarType

// Folders imports folders and reads them by CID.
type Folders interface {
	// AddFolder imports a tar stream as a folder. When it returns, all blocks are durable on this
	// node.
	AddFolder(ctx context.Context, r io.Reader, as content.Layout) (content.Imported, error)
	// OpenFolder opens a folder, and OpenFolderFor opens it with the rights of an account. Their
	// arguments and errors are those of Files.Open and Files.OpenFor.
	OpenFolder(ctx context.Context, text string) (content.Folder, error)
	OpenFolderFor(ctx context.Context, account state.AccountID, text string) (content.Folder, error)
}

// ContentEntry is a file, folder or link directly in an imported folder.
type ContentEntry struct {
	Name string `json:"name"`
	CID  string `json:"cid"`
}

// addContent answers POST /content: it imports the body as a file, or as a folder if its type is
// TarType. If the body ends early, it returns an error, so that a part of a file is never imported as
// the whole. The query may have the keys hash and cid-version, which choose the layout, and entries, for
// which the answer has the entries of the folder.
func (p *operator) addContent(w http.ResponseWriter, r *http.Request) error {
	query, err := queryOf(r)
	if err != nil {
		return err
	}
	entries, err := flagOf(r, "entries", false)
	if err != nil {
		return err
	}
	as := content.Layout{Hash: query.Get("hash"), CIDVersion: query.Get("cid-version")}
	var done content.Imported
	if r.Header.Get("Content-Type") == TarType {
		done, err = p.opts.Files.AddFolder(r.Context(), r.Body, as)
	} else {
		done.Root, done.Size, err = p.opts.Files.Add(r.Context(), r.Body, as)
	}
	if err != nil {
		return fmt.Errorf("add content: %w", err)
	}
	body := Content{CID: done.Root.String(), Size: done.Size}
	for _, e := range done.Entries {
		if entries {
			body.Entries = append(body.Entries, ContentEntry{e.Name, e.CID.String()})
		}
	}
	return web.JSON(w, http.StatusCreated, body)
}

// content answers GET /content/{cid} with a file, or with a folder if the client accepts TarType. The
// last part of the path may also be a CID and a path in its folder, with its slashes escaped.
func (p *operator) content(w http.ResponseWriter, r *http.Request) error {
	err := p.file(w, r)
	if !errors.Is(err, content.ErrFolder) || r.Header.Get("Accept") != TarType {
		return err
	}
	return p.folder(w, r)
}

// folder answers with a folder. If a later read fails, the answer ends with FailureTrailer.
func (p *operator) folder(w http.ResponseWriter, r *http.Request) (err error) {
	f, err := p.openFolder(r)
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := &stream{w: w, header: func(h http.Header) { h.Set("Content-Type", TarType) }}
	err = f.WriteTar(r.Context(), out)
	if err == nil || !out.fail(r.Context(), err) {
		return err
	}
	p.opts.Logger.WarnContext(r.Context(), "cannot read a folder", "cid", r.PathValue("cid"), "err", err)
	return nil
}

func (p *operator) openFolder(r *http.Request) (content.Folder, error) {
	text := r.PathValue("cid")
	query, err := queryOf(r)
	if err != nil {
		return nil, err
	}
	if !query.Has("user") {
		return p.opts.Files.OpenFolder(r.Context(), text)
	}
	who, err := Local(p.opts.Accounts)(r.Context(), r)
	if err != nil {
		return nil, err
	}
	return p.opts.Files.OpenFolderFor(r.Context(), who.Account, text)
}
