package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Media types of a PinUpload.
const (
	TypeTar = "application/x-tar"
	TypeCAR = "application/vnd.ipld.car"
)

// PinUpload is content to store and pin.
type PinUpload struct {
	// Type is TypeTar for a folder as a tar stream, TypeCAR for a CAR, and empty for a file.
	Type string
	// Name is the name of the pin; empty means none.
	Name string
	// Hash is sha2-256 or blake3, and CIDVersion 0 or 1; empty means the default of the cluster. They are for
	// files and folders.
	Hash, CIDVersion string
	// Entries asks for the entries of a folder.
	Entries bool
	// Open opens the content. UploadPin calls it again for each node that it tries, after it has closed what
	// Open returned before. An error of Open, or of the content, ends UploadPin.
	Open func() (io.ReadCloser, error)
	// Once means that the content can be read only once, as a pipe. UploadPin then tries another node only if
	// none has read from the content.
	Once bool
}

// UploadedPins is the result of UploadPin.
type UploadedPins struct {
	Pins    []UploadedPin `json:"pins"`             // one for each root
	Size    uint64        `json:"size"`             // of the files or, for a CAR, of its blocks, in bytes
	Blocks  uint64        `json:"blocks,omitempty"` // number of blocks in a CAR
	Entries []FolderEntry `json:"entries,omitempty"`
}

// UploadedPin is a pin of uploaded content.
type UploadedPin struct {
	ID     string `json:"id"`
	CID    string `json:"cid"`
	Name   string `json:"name"`
	Status string `json:"status"`
}

// FolderEntry is a file, folder or link directly in a folder.
type FolderEntry struct {
	Name string `json:"name"`
	CID  string `json:"cid"`
}

// UploadPin stores content on a node of the cluster and pins it. When it returns, the content is durable on this
// node; it is on enough nodes when the pin is pinned. If a node fails, UploadPin sends the content to another
// node, and pins it only once.
func (c *Client) UploadPin(ctx context.Context, u PinUpload) (done UploadedPins, err error) {
	query := url.Values{}
	for name, value := range map[string]string{"name": u.Name, "hash": u.Hash, "cid_version": u.CIDVersion} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if u.Entries {
		query.Set("entries", "true")
	}
	kind := u.Type
	if kind == "" {
		kind = "application/octet-stream"
	}
	key := rand.Text()
	return done, c.via(ctx, webAPI, operation{verb: "upload"}, func(ctx context.Context, base string) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		from, err := u.Open()
		if err != nil {
			return &sourceError{err}
		}
		body := newOutgoing(from, func() { cancel(errStalled) }, c.stall)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/pins/upload?"+query.Encode(), body)
		if err != nil {
			_ = body.Close() // was not read
			return &sourceError{err}
		}
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Idempotency-Key", key)
		r.Header.Set("Expect", "100-continue") // a refusal comes before the body
		resp, err := c.by.RoundTrip(r)
		if err == nil {
			done = UploadedPins{}
			err = answered(resp, &done)
		}
		if err == nil {
			return nil
		}
		var refused *refusal
		if errors.As(err, &refused) && resp.StatusCode == http.StatusInsufficientStorage {
			err = &fullError{refused} // a node stores an upload on its own disk first
		}
		body.ended(ctx)
		read, failed := body.state()
		switch {
		case failed != nil:
			return failed
		case errors.Is(context.Cause(ctx), errStalled):
			err = &bodyError{errStalled}
		}
		if u.Once && read {
			err = &finalError{err}
		}
		return err
	})
}

// fullError is the refusal of a node that has no room. Each node is asked once.
type fullError struct{ *refusal }

func (e *fullError) Unwrap() error { return e.refusal }

// finalError is an error of a connection after which a request cannot be repeated.
type finalError struct{ error }

func (e *finalError) Error() string {
	return e.error.Error() + "; the input cannot be read again, and it may have been stored: see holdfast pin ls"
}

func (e *finalError) Unwrap() error { return e.error }

// outgoing is the body of an upload. Its timer fires if the node takes no more bytes for a time. The timer does
// not run while the content is read, which may be a slow pipe, and after the end.
type outgoing struct {
	from   io.ReadCloser
	timer  *time.Timer
	within time.Duration
	closed chan struct{}

	// mu guards read and failed.
	mu     sync.Mutex
	read   bool  // Read was called
	failed error // first error of the content
}

func newOutgoing(from io.ReadCloser, stalled func(), within time.Duration) *outgoing {
	o := &outgoing{from: from, within: within, closed: make(chan struct{}), timer: time.AfterFunc(within, stalled)}
	o.timer.Stop() // the transport reads the first bytes when the node wants them
	return o
}

// Read implements io.Reader.
func (o *outgoing) Read(p []byte) (int, error) {
	o.timer.Stop()
	n, err := o.from.Read(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.read = true
	switch {
	case err == nil:
		o.timer.Reset(o.within)
	case !errors.Is(err, io.EOF):
		if o.failed == nil {
			o.failed = &sourceError{err}
		}
		return n, o.failed
	}
	return n, err
}

// Close implements io.Closer. Only the first call closes the content.
func (o *outgoing) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.closed:
		return nil
	default:
	}
	o.timer.Stop()
	defer close(o.closed)
	if err := o.from.Close(); err != nil {
		return fmt.Errorf("close the content of an upload: %w", err)
	}
	return nil
}

// closeGrace is how long a failed upload waits for the transport to close the content. It may be stuck in a read of
// a pipe.
const closeGrace = time.Second

// ended waits until the transport no longer reads the body, but at most closeGrace, or until ctx ends.
func (o *outgoing) ended(ctx context.Context) {
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-o.closed:
	case <-grace.C:
	case <-ctx.Done():
	}
}

// state returns whether content was read, and the first error of the content.
func (o *outgoing) state() (read bool, failed error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.read, o.failed
}
