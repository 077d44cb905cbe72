package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Backups reads backups of the replicated state.
type Backups interface {
	// Backup writes a backup that has everything that was acknowledged before the call. It writes
	// nothing before it has read the whole state.
	Backup(ctx context.Context, w io.Writer) error
}

// backup answers GET /backup with a backup of the replicated state. Its size is not known in
// advance, so a later error is in the trailer FailureTrailer. Only the client limits the time.
func (p *operator) backup(w http.ResponseWriter, r *http.Request) error {
	body := &stream{w: w, header: func(h http.Header) { h.Set("Content-Type", "application/octet-stream") }}
	err := p.opts.Backups.Backup(r.Context(), body)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("read a backup: %w", err)
	if !body.fail(r.Context(), err) {
		return err
	}
	p.opts.Logger.ErrorContext(r.Context(), "a backup has ended early", "err", err)
	return nil
}
