package s3

import (
	"context"
	"io"
	"time"
)

// Bounds of use cases that move content. What moves it is bounded by the client
// that has to go on sending (stallTimeout); these are for the rest.
const (
	// sealTimeout bounds the time until the next piece of a body is asked for, and
	// that from its end until its content is durable on enough nodes, which have
	// most of it by then.
	sealTimeout = 2 * time.Minute
	// joinTimeout bounds making an object of parts, or of another object.
	joinTimeout = 2 * time.Minute
	// piecesTimeout bounds copying a part, which moves up to Options.MaxObject.
	piecesTimeout = 15 * time.Minute
)

// fuse ends the context of a request whose content is stored when the cluster does
// not answer: before the first byte of the body is asked for, between two pieces of
// it, between the last one and the check of it, and after that. A body itself may
// take as long as it takes.
type fuse struct{ timer *time.Timer }

// burn returns a context that ends with the fuse.
func burn(ctx context.Context) (context.Context, *fuse, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	f := &fuse{time.AfterFunc(caseTimeout, func() { cancel(context.DeadlineExceeded) })}
	return ctx, f, func() {
		f.timer.Stop()
		cancel(context.Canceled)
	}
}

// reader is a body that stops the fuse while it is read, and comes over wire.
func (f *fuse) reader(r io.Reader, wire *patient) io.Reader { return &fused{r, f, wire} }

type fused struct {
	r    io.Reader
	f    *fuse
	wire *patient
}

func (r *fused) Read(p []byte) (int, error) {
	r.f.timer.Stop()
	n, err := r.r.Read(p)
	r.f.timer.Reset(sealTimeout)
	return n, err
}

// Interrupt ends the reading, on behalf of the store that consumes the body.
func (r *fused) Interrupt() { r.wire.Interrupt() }

// checked is called when nothing is left but to name the content.
func (f *fuse) checked() { f.timer.Reset(caseTimeout) }
