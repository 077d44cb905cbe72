package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Content reads content by its CID with the rights of an account. It returns state.ErrNotFound for
// content that the account may not read, as for content that no member has.
type Content interface {
	// OpenFor opens a file. It returns content.ErrFolder for a folder, and state.ErrInvalid for content
	// that is neither.
	OpenFor(ctx context.Context, account state.AccountID, text string) (f io.ReadSeekCloser, size uint64, err error)
	// OpenFolderFor opens a folder.
	OpenFolderFor(ctx context.Context, account state.AccountID, text string) (content.Folder, error)
	// ExportCARFor writes the DAG as a CAR. It writes nothing before it has read the root.
	ExportCARFor(ctx context.Context, w io.Writer, account state.AccountID, text string) error
}

// downloadPin serves GET /pins/{id}/download: the content of a pin as a file, a folder as a tar
// stream, and with as=car the whole DAG as a CAR.
func (s *surface) downloadPin(c *call) (err error) {
	held := s.Limits.HoldContent(c.who.Account)
	defer held.Release()
	if err := held.Grow(web.ContentBlock); err != nil {
		return err //nolint:wrapcheck // is the answer
	}
	pin, err := s.Pins.Get(c.ctx, c.who.Account, pinID(c))
	if err != nil {
		return err
	}
	name, ctx := cmp.Or(pin.Name, pin.CID), c.r.Context()
	switch as := c.r.URL.Query().Get("as"); as {
	case "":
	case "car":
		out := fileStream(c, web.CARType+"; version=1", name+".car")
		return out.Ended(s.Content.ExportCARFor(ctx, out, c.who.Account, pin.CID)) //nolint:wrapcheck // has the operation
	default:
		return web.BadRequest("as=%s is unknown: use as=car, or nothing", as)
	}
	f, size, err := s.Content.OpenFor(ctx, c.who.Account, pin.CID)
	if errors.Is(err, content.ErrFolder) {
		return s.downloadFolder(c, name, pin.CID)
	}
	if err != nil {
		return fmt.Errorf("open content: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return web.SendFile(c.w, c.r, f, web.File{ //nolint:wrapcheck // has the operation
		ETag: pin.CID, Size: size, Header: func(h http.Header) { storedContent(h, "attachment", "application/octet-stream", name) },
	})
}

func (s *surface) downloadFolder(c *call, name, cid string) (err error) {
	f, err := s.Content.OpenFolderFor(c.r.Context(), c.who.Account, cid)
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := fileStream(c, web.TarType, name+".tar")
	return out.Ended(f.WriteTar(c.r.Context(), out)) //nolint:wrapcheck // has the operation
}

// fileStream returns the body of an answer that the browser saves as a file with a name.
func fileStream(c *call, kind, name string) *web.Stream {
	return web.NewStream(c.w, c.r, func(h http.Header) { storedContent(h, "attachment", kind, name) })
}
