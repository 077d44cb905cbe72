package webapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/cluster/uploads"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Errors for a body that a client does not send completely or too slowly.
var (
	errCut   = web.BadRequest("the body could not be read to its end")
	errStall = web.Errorf(http.StatusRequestTimeout, "REQUEST_TIMEOUT", "the client has sent too little for a minute")
)

// uploadBody is the answer to an upload.
type uploadBody struct {
	Pins []pinBody `json:"pins"` // one for each root, as in the answer to POST /pins
	Size uint64    `json:"size"` // of the files or, for a CAR, of its blocks, in bytes
	// Blocks is the number of blocks in a CAR. Entries are the files, folders and links directly in a folder,
	// ordered by name, if the request asks for them.
	Blocks  uint64      `json:"blocks,omitempty"`
	Entries []entryBody `json:"entries,omitempty"`
}

// entryBody is an entry of a folder.
type entryBody struct {
	Name string `json:"name"`
	CID  string `json:"cid"`
}

// upload answers POST /pins/upload: it stores the body on this node and pins it. A body of the type
// multipart/form-data is a folder of its files, or one file; a body of web.TarType is a folder; a body of
// web.CARType is a CAR; any other body is one file. When it has answered, the pins are durable, and the content on this node; the content is
// on enough nodes when the pin is pinned.
func (s *surface) upload(c *call) error {
	r := uploads.Request{Account: c.who.Account, As: content.Layout{Hash: c.query.Get("hash"), CIDVersion: c.query.Get("cid_version")}}
	var err error
	if c.query.Has("name") {
		r.Pin.Name, r.Pin.Given = c.query.Get("name"), state.GivenName
	}
	if c.query.Has("until") {
		if r.Pin.End, err = pins.ParseEnd(c.query.Get("until")); err != nil {
			return err
		}
	}
	entries := c.query.Get("entries") == "true"
	if c.query.Has("entries") && !entries {
		return web.BadRequest("entries can only be true")
	}
	kind, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type")) // without a type the body is a file
	if entries && kind != web.TarType {
		return web.BadRequest("entries is for a folder of the type %s", web.TarType)
	}
	if r.Once, r.Repeats, err = web.RequestName(c.r); err != nil {
		return err
	}
	wire := &web.Patient{Body: c.r.Body, Control: http.NewResponseController(c.w), Stall: web.StallTimeout, Broken: errCut}
	var done uploads.Result
	switch kind {
	case "multipart/form-data":
		form, formErr := web.NewFilesForm(c.r.Header, wire, errCut)
		if formErr != nil {
			return web.BadRequest("%v", formErr)
		}
		done, err = s.Uploads.Files(c.long, r, func() (string, io.Reader, error) {
			path, file, err := form.File()
			return path, sent{file}, err //nolint:wrapcheck // io.EOF, or an answer to the client
		})
	case web.TarType:
		done, err = s.Uploads.Folder(c.long, r, sent{wire})
	case web.CARType:
		if c.query.Has("hash") || c.query.Has("cid_version") {
			return web.BadRequest("a CAR has its own hashes: hash and cid_version are for files")
		}
		done, err = s.Uploads.CAR(c.long, r, sent{wire})
	default:
		done, err = s.Uploads.File(c.long, r, sent{wire})
	}
	if r.Repeats && errors.Is(err, state.ErrExists) {
		return web.ErrNameReused
	}
	if err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(answerTimeout))
	body := uploadBody{Size: done.Size, Blocks: done.Blocks}
	for i := range done.Pins {
		body.Pins = append(body.Pins, bodyOfPin(&done.Pins[i]))
	}
	if entries {
		for _, e := range done.Entries {
			if err := c.held.Grow(int64(len(e.Name)) + entryBytes); err != nil {
				return err
			}
			body.Entries = append(body.Entries, entryBody{e.Name, e.CID.String()})
		}
	}
	return c.created(body)
}

// entryBytes is about the memory of an entry of a folder in an answer, without its name, in bytes.
const entryBytes = 160

// sent is a body, or a file in it, whose errors become answers to the client.
type sent struct{ io.Reader }

// Read implements io.Reader.
func (s sent) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF): // the end of the form is missing
		err = errCut
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errStall
	}
	return n, err //nolint:wrapcheck // a reader
}
