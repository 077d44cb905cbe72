package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"
)

// abandonTimeout bounds how long a failed upload tries to remove its parts from the cluster.
const abandonTimeout = 15 * time.Second

// uploadParts stores the parts of src as one object by a multipart upload.
func (c *Client) uploadParts(ctx context.Context, bucket, key string, src source, o UploadOptions) (Object, error) {
	u, err := c.begin(ctx, bucket, key, src, o)
	if err != nil {
		return Object{}, err
	}
	object, err := c.finish(ctx, u, src, o)
	if u.continued && errors.Is(err, ErrNotFound) { // the cluster does not have the upload of the journal any more
		if err := u.journal.remove(); err != nil {
			return Object{}, err
		}
		if u, err = c.begin(ctx, bucket, key, src, o); err != nil {
			return Object{}, err
		}
		object, err = c.finish(ctx, u, src, o)
	}
	if err == nil {
		return object, u.journal.remove()
	}
	if src.head().Path != "" && o.Journal != "" && !errors.Is(err, ErrChanged) {
		return Object{}, errors.Join(err, u.journal.close()) // a later call continues the upload
	}
	aborting, stop := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer stop()
	if abort := c.abort(aborting, bucket, key, u.id); abort == nil {
		return Object{}, errors.Join(err, u.journal.remove())
	}
	return Object{}, errors.Join(err, u.journal.close())
}

// upload is a running multipart upload.
type upload struct {
	bucket, key, id string
	journal         *journal
	continued       bool // an earlier call has started the upload

	mu     sync.Mutex
	stored map[int]string // ETags by part number
}

// etag returns the ETag of a stored part, or "" if the part is not stored.
func (u *upload) etag(number int) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.stored[number]
}

// keep records a part that the cluster has stored, also in the journal.
func (u *upload) keep(number int, etag string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stored[number] = etag
	return u.journal.part(number, etag)
}

// begin starts a multipart upload, or returns the one that the journal records if its source and
// target are the same. It aborts an upload in the journal that has another source or target.
func (c *Client) begin(ctx context.Context, bucket, key string, src source, o UploadOptions) (*upload, error) {
	u := &upload{bucket: bucket, key: key, stored: map[int]string{}}
	entry := src.head()
	entry.Bucket, entry.Key = bucket, key
	if o.Journal != "" {
		old, err := readJournal(o.Journal)
		switch {
		case err != nil:
			return nil, err
		case old != nil && entry.Path != "" && old.continues(entry):
			u.id, u.stored, u.continued = old.UploadID, old.stored, true
			u.journal, err = appendJournal(o.Journal)
			return u, err
		case old != nil:
			if err := c.Abandon(ctx, o.Journal); err != nil {
				return nil, err
			}
		}
		if entry.Others, err = c.uploads(ctx, bucket, key); err != nil {
			return nil, err
		}
		if u.journal, err = createJournal(o.Journal, entry); err != nil {
			return nil, err
		}
	}
	var err error
	if u.id, err = c.initiate(ctx, bucket, key, o); err != nil {
		if unknown := new(Error); errors.As(err, &unknown) && (unknown.unsent || !unknown.Temporary()) {
			return nil, errors.Join(err, u.journal.remove())
		}
		return nil, errors.Join(err, u.journal.close()) // the upload may have started, so the journal stays
	}
	return u, u.journal.started(u.id)
}

// initiate sends the request that starts a multipart upload and returns its id. The request is
// not idempotent, so the client repeats it only if no node has processed it.
func (c *Client) initiate(ctx context.Context, bucket, key string, o UploadOptions) (id string, err error) {
	_, err = c.do(ctx, operation{verb: "put", bucket: bucket, key: key, once: true}, func(ctx context.Context, n *node) error {
		id, err = n.core.NewMultipartUpload(ctx, bucket, key, o.put())
		return err
	})
	return id, err
}

// finish stores the parts that are missing and completes the upload.
func (c *Client) finish(ctx context.Context, u *upload, src source, o UploadOptions) (Object, error) {
	var size int64
	sending, stop := errgroup.WithContext(ctx)
	sending.SetLimit(o.parallel())
	err := func() error {
		for number := 1; ; number++ {
			if u.etag(number) != "" { // stored by an earlier run
				there := src.sizeOf(number)
				size += there
				o.progress(there)
				continue
			}
			p, err := src.next(number)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil && number > maxParts {
				err = ErrTooLong
			}
			if err = cmp.Or(err, stop.Err()); err != nil {
				return err
			}
			size += p.size
			sending.Go(func() error {
				defer src.release(p)
				etag, err := c.putPart(stop, u, p)
				if err != nil {
					return err
				}
				o.progress(p.content())
				return u.keep(p.number, etag)
			})
		}
	}()
	if sent := sending.Wait(); sent != nil { // the first failure of a part stops the loop too
		err = sent
	}
	if err == nil {
		err = src.changed()
	}
	if err != nil {
		return Object{}, err
	}
	var parts []minio.CompletePart
	for _, number := range slices.Sorted(maps.Keys(u.stored)) {
		parts = append(parts, minio.CompletePart{PartNumber: number, ETag: u.stored[number]})
	}
	return c.complete(ctx, u, parts, size, o)
}

func (c *Client) putPart(ctx context.Context, u *upload, p part) (etag string, err error) {
	p, release, err := c.filled(ctx, p)
	if err != nil {
		return "", err
	}
	defer release()
	headers := http.Header{}
	if p.crc != "" {
		headers.Set("X-Amz-Checksum-Crc32c", p.crc)
	}
	_, err = c.send(ctx, operation{verb: "put a part of", bucket: u.bucket, key: u.key}, p, func(ctx context.Context, n *node, body io.Reader) (string, error) {
		stored, err := n.core.PutObjectPart(ctx, u.bucket, u.key, u.id, p.number, body, p.size, minio.PutObjectPartOptions{CustomHeader: headers})
		etag = stored.ETag
		return etag, err
	})
	return etag, err
}

func (c *Client) complete(ctx context.Context, u *upload, parts []minio.CompletePart, size int64, o UploadOptions) (Object, error) {
	var done minio.UploadInfo
	seen, err := c.do(ctx, operation{verb: "complete", bucket: u.bucket, key: u.key}, func(ctx context.Context, n *node) error {
		var err error
		done, err = n.core.CompleteMultipartUpload(ctx, u.bucket, u.key, u.id, parts, minio.PutObjectOptions{})
		return err
	})
	if err != nil {
		return Object{}, err
	}
	object := fromHeader(u.bucket, u.key, seen.header)
	object.Size, object.ETag, object.ContentType, object.Metadata = size, done.ETag, o.put().ContentType, o.Metadata
	return object, nil
}

func (c *Client) abort(ctx context.Context, bucket, key, id string) error {
	_, err := c.do(ctx, operation{verb: "abort the upload of", bucket: bucket, key: key}, func(ctx context.Context, n *node) error {
		return n.core.AbortMultipartUpload(ctx, bucket, key, id)
	})
	if errors.Is(err, ErrNotFound) { // the upload has ended already
		return nil
	}
	return err
}

// uploads returns the ids of the open uploads of a key.
func (c *Client) uploads(ctx context.Context, bucket, key string) (ids []string, err error) {
	_, err = c.do(ctx, operation{verb: "list uploads of", bucket: bucket, key: key}, func(ctx context.Context, n *node) error {
		ids = nil
		listing, stop := context.WithCancel(ctx)
		defer stop() // ends a list that is not read to its end
		for u := range n.core.ListIncompleteUploads(listing, bucket, key, true) {
			if u.Err != nil {
				return u.Err
			}
			if u.Key == key {
				ids = append(ids, u.UploadID)
			}
		}
		return ctx.Err()
	})
	return ids, err
}

// Abandon aborts the upload that the journal at journalPath records, and deletes the journal. Use
// it for an interrupted upload that will not be continued.
func (c *Client) Abandon(ctx context.Context, journalPath string) error {
	j, err := readJournal(journalPath)
	if err != nil || j == nil {
		return err
	}
	ids := []string{j.UploadID}
	if j.UploadID == "" { // the process ended before the answer with the id
		now, err := c.uploads(ctx, j.Bucket, j.Key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		ids = slices.DeleteFunc(now, func(id string) bool { return slices.Contains(j.Others, id) })
	}
	for _, id := range ids {
		if err := c.abort(ctx, j.Bucket, j.Key, id); err != nil {
			return err
		}
	}
	return removeJournal(journalPath)
}
