package client

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// ErrIncompleteBackup means that a backup has ended before it was complete.
var ErrIncompleteBackup = errors.New("the backup is not complete")

// Backup returns a backup of the replicated state. If it fails after it has begun, body returns
// ErrIncompleteBackup or io.ErrUnexpectedEOF and not io.EOF. The caller closes body.
func (c *Client) Backup(ctx context.Context) (body io.ReadCloser, err error) {
	resp, err := c.send(ctx, http.MethodGet, "/backup", nil, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, answered(resp, nil)
	}
	return &streamBody{resp.Body, resp, ErrIncompleteBackup}, nil
}
