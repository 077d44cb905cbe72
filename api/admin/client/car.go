package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/holdfast-ipfs/holdfast/api/admin"
)

// CAR is the answer to the import of a CAR file.
type CAR = admin.CAR

// ErrIncompleteCAR means that an export has ended before the CAR was complete.
var ErrIncompleteCAR = errors.New("the CAR is not complete")

// ImportCAR imports the blocks of the CAR r. The node deletes the blocks after some time unless pins
// of the roots keep them. If user is not empty, the call fails early unless that account exists.
func (c *Client) ImportCAR(ctx context.Context, user string, r io.Reader) (car CAR, err error) {
	resp, err := c.send(ctx, http.MethodPost, "/car", as(user), io.NopCloser(r))
	if err != nil {
		return car, err
	}
	return car, answered(resp, &car)
}

// ExportCAR returns the DAG with a CID as a CARv1, with the rights of user. An empty user means the
// operator, who may read everything. If the export fails after it has begun, body returns
// ErrIncompleteCAR or io.ErrUnexpectedEOF and not io.EOF. The caller closes body.
func (c *Client) ExportCAR(ctx context.Context, user, cid string) (body io.ReadCloser, err error) {
	resp, err := c.send(ctx, http.MethodGet, "/car/"+url.PathEscape(cid), as(user), nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, answered(resp, nil)
	}
	return &streamBody{resp.Body, resp, ErrIncompleteCAR}, nil
}
