package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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
func (s *surface) downloadPin(c *call) error {
	pin, err := s.Pins.Get(c.ctx, c.who.Account, pinID(c))
	if err != nil {
		return err
	}
	name, ctx := cmp.Or(pin.Name, pin.CID), c.r.Context()
	switch as := c.r.URL.Query().Get("as"); as {
	case "":
	case "car":
		return s.stream(c, web.CARType+"; version=1", name+".car", func(w io.Writer) error {
			return s.Content.ExportCARFor(ctx, w, c.who.Account, pin.CID) //nolint:wrapcheck // stream wraps it
		})
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
	sent := false // SendContent closes what it has opened
	err = s.Limits.SendContent(c.w, c.r, web.Content{
		Account: c.who.Account,
		Find: func() (state.Object, error) {
			return state.Object{ETag: pin.CID, Size: size, Created: pin.Created}, nil
		},
		Open: func(context.Context, state.AccountID, *state.Object) (io.ReadSeekCloser, error) {
			sent = true
			return f, nil
		},
		Header: func(header http.Header, _ *state.Object) { attachment(header, "application/octet-stream", name) },
	})
	if !sent {
		err = errors.Join(err, f.Close())
	}
	return err
}

func (s *surface) downloadFolder(c *call, name, cid string) (err error) {
	f, err := s.Content.OpenFolderFor(c.r.Context(), c.who.Account, cid)
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }() // also when stream closes the connection
	return s.stream(c, "application/x-tar", name+".tar", func(w io.Writer) error { return f.WriteTar(c.r.Context(), w) })
}

// attachment sets the header of content that the browser saves as a file with a name.
func attachment(header http.Header, kind, name string) {
	header.Set("Content-Security-Policy", sandbox)
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Content-Type", kind)
	header.Set("Content-Disposition", "attachment; filename*=UTF-8''"+escapeName(name))
}

// streamBlock is the memory in bytes that a block of streamed content takes.
const streamBlock = 1 << 20

// stream answers with what write writes, as a file that the browser saves. If write fails after the
// first bytes were sent, stream closes the connection, so that the browser does not keep an incomplete
// file.
func (s *surface) stream(c *call, kind, name string, write func(io.Writer) error) error {
	held := s.Limits.HoldContent(c.who.Account)
	defer held.Release()
	if err := held.Grow(streamBlock); err != nil {
		return err //nolint:wrapcheck // is the answer
	}
	header := c.w.Header()
	before := header.Clone()
	attachment(header, kind, name)
	out := &begun{w: web.NewSteady(c.w, web.StallTimeout)}
	err := write(out)
	if err != nil && out.begun {
		s.Logger.InfoContext(c.r.Context(), "a file was not sent whole", "request", header.Get(web.RequestIDHeader), "file", name, "err", err)
		panic(http.ErrAbortHandler)
	}
	if err != nil { // the answer is the error
		clear(header)
		maps.Copy(header, before)
	}
	return err
}

// begun is a writer that remembers whether anything was written.
type begun struct {
	w     io.Writer
	begun bool
}

// Write implements io.Writer.
func (b *begun) Write(p []byte) (int, error) {
	b.begun = true
	return b.w.Write(p) //nolint:wrapcheck // of the caller
}
