package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
	gateway "github.com/holdfast-ipfs/holdfast/api/client"
	"github.com/schollz/progressbar/v3"
)

// uploadPaths stores a file or a folder on a cluster and pins it. It returns the content and the pin.
func (a *app) uploadPaths(ctx context.Context, c *gateway.Client, paths []string, folder bool, plan addPlan) (client.Content, client.PinStatus, error) {
	u := gateway.PinUpload{Name: plan.name, Hash: plan.hash, CIDVersion: plan.version}
	var done gateway.UploadedPins
	var err error
	if folder {
		done, err = a.uploadFolder(ctx, c, u, paths, plan.hidden)
	} else {
		done, err = a.uploadFile(ctx, c, u, paths[0])
	}
	if err == nil && len(done.Pins) != 1 {
		err = errors.New("the answer of the cluster has no pin")
	}
	if err != nil {
		return client.Content{}, client.PinStatus{}, err
	}
	added := client.Content{CID: done.Pins[0].CID, Size: done.Size}
	for _, e := range done.Entries {
		added.Entries = append(added.Entries, client.ContentEntry(e))
	}
	return added, uploadedPin(done.Pins[0]), nil
}

func uploadedPin(p gateway.UploadedPin) client.PinStatus {
	return client.PinStatus{RequestID: p.ID, Status: p.Status, Pin: client.Pin{CID: p.CID, Name: p.Name}}
}

// uploadFile uploads a file, or standard input for the path -. If a node fails, it reads a regular file
// again for the next node.
func (a *app) uploadFile(ctx context.Context, c *gateway.Client, u gateway.PinUpload, path string) (gateway.UploadedPins, error) {
	size, regular := regularSize(path)
	if regular {
		return a.upload(ctx, c, u, size, func() (io.ReadCloser, error) {
			f, err := openInput(ctx, path)
			if err != nil {
				return nil, err
			}
			return struct {
				io.Reader
				io.Closer
			}{interruptible(ctx, f), f}, nil
		})
	}
	in, size, done, err := a.input(ctx, path)
	if err != nil {
		return gateway.UploadedPins{}, err
	}
	defer done()
	u.Once = true
	return a.upload(ctx, c, u, size, func() (io.ReadCloser, error) { return io.NopCloser(in), nil })
}

// uploadFolder uploads a folder, or several paths as one folder.
func (a *app) uploadFolder(ctx context.Context, c *gateway.Client, u gateway.PinUpload, paths []string, hidden bool) (gateway.UploadedPins, error) {
	names, err := namesOf(paths)
	if err != nil {
		return gateway.UploadedPins{}, err
	}
	var last *packing
	u.Type, u.Entries = gateway.TypeTar, len(paths) > 1
	done, err := a.upload(ctx, c, u, -1, func() (io.ReadCloser, error) {
		last = pack(ctx, paths, names, hidden)
		return last, nil
	})
	if err != nil {
		return done, err
	}
	_ = last.Close() // never fails; the node has the whole folder
	return done, a.packed(ctx, last)
}

// upload uploads content with a progress bar. size is that of the content in bytes, or -1 if it is not known.
func (a *app) upload(ctx context.Context, c *gateway.Client, u gateway.PinUpload, size int64, open func() (io.ReadCloser, error)) (gateway.UploadedPins, error) {
	bar := a.newBar(size, "uploading")
	u.Open = func() (io.ReadCloser, error) {
		in, err := open()
		bar.Reset() // another node gets the content from its beginning
		return &watched{in, bar}, err
	}
	done, err := c.UploadPin(ctx, u)
	_ = bar.Finish() // it is only for the eye
	var missing *os.PathError
	if errors.As(err, &missing) {
		return done, missing
	}
	return done, clusterError(ctx, err)
}

// watched is a reader whose bytes a progress bar counts.
type watched struct {
	io.ReadCloser

	bar *progressbar.ProgressBar
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	_ = w.bar.Add(n) // it is only for the eye
	return n, err
}
