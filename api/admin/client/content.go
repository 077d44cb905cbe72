package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/holdfast-ipfs/holdfast/api/admin"
)

var errIncompleteFolder = errors.New("the folder is not complete")

// ContentEntry is a file, folder or link directly in an imported folder.
type ContentEntry = admin.ContentEntry

// Import describes how to import content.
type Import struct {
	Hash       string // sha2-256 or blake3; empty means the default
	CIDVersion string // 0 or 1; empty means the default
	Folder     bool   // the content is a folder as a tar stream
	Entries    bool   // the answer has the entries of the folder
}

// AddContent imports the content of r as a file. The node deletes the blocks after some time
// unless a pin of the CID keeps them.
func (c *Client) AddContent(ctx context.Context, r io.Reader) (added Content, err error) {
	return c.Import(ctx, r, Import{})
}

// Import does the same as AddContent for a file or a folder.
func (c *Client) Import(ctx context.Context, r io.Reader, how Import) (added Content, err error) {
	query := url.Values{}
	for name, value := range map[string]string{"hash": how.Hash, "cid-version": how.CIDVersion} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if how.Entries {
		query.Set("entries", "true")
	}
	resp, err := c.send(ctx, http.MethodPost, "/content", query, io.NopCloser(r), func(req *http.Request) {
		if how.Folder {
			req.Header.Set("Content-Type", admin.TarType)
		}
	})
	if err != nil {
		return added, err
	}
	return added, answered(resp, &added)
}

// OpenContent returns the bytes and the size of the file with a CID, with the rights of user. An
// empty user means the operator, who may read everything. If the connection breaks before the
// end, body returns io.ErrUnexpectedEOF and not io.EOF. The caller closes body.
func (c *Client) OpenContent(ctx context.Context, user, cid string) (body io.ReadCloser, size int64, err error) {
	f, err := c.open(ctx, user, cid)
	return f.Body, f.Size, err
}

// Opened is a file or a folder that is being read.
type Opened struct {
	Body   io.ReadCloser
	Size   int64 // of a file, in bytes; -1 for a folder
	Folder bool  // Body is a tar stream of the folder, with names that are relative to it
}

// OpenFileOrFolder does the same as OpenContent for a file or a folder. cid may have a path after a
// slash, which leads to a file or folder below the CID. Body returns an error instead of io.EOF if the
// node cannot read the whole folder.
func (c *Client) OpenFileOrFolder(ctx context.Context, user, cid string) (Opened, error) {
	return c.open(ctx, user, cid, func(req *http.Request) { req.Header.Set("Accept", admin.TarType) })
}

func (c *Client) open(ctx context.Context, user, cid string, with ...option) (Opened, error) {
	resp, err := c.send(ctx, http.MethodGet, "/content/"+url.PathEscape(cid), as(user), nil, with...)
	if err != nil {
		return Opened{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return Opened{}, answered(resp, nil)
	}
	folder := resp.Header.Get("Content-Type") == admin.TarType
	if folder {
		resp.Body = &streamBody{resp.Body, resp, errIncompleteFolder}
	}
	return Opened{resp.Body, resp.ContentLength, folder}, nil
}

// streamBody is the body of an answer that may end with admin.FailureTrailer.
type streamBody struct {
	io.ReadCloser
	answer     *http.Response // has the trailer after the end of the body
	incomplete error          // what the end of the body means if there is a trailer
}

// Read implements io.Reader. At the end it returns the reason of the node if the answer is not complete.
func (s *streamBody) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	if text := s.answer.Trailer.Get(admin.FailureTrailer); err == io.EOF && text != "" { //nolint:errorlint // only io.EOF itself is the end
		if plain, err := url.PathUnescape(text); err == nil {
			text = plain
		}
		return n, fmt.Errorf("%w: %s", s.incomplete, text)
	}
	return n, err
}
