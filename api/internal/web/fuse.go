package web

import (
	"context"
	"io"
	"time"
)

// Time limits of use cases that transfer content. StallTimeout limits the wait for the
// client; these limit the rest.
const (
	// SealTimeout limits the time from the end of a body until its content is durable on
	// enough nodes, which have most of it by then. It also limits the time until the next
	// part of a body is read.
	SealTimeout = 2 * time.Minute
	// JoinTimeout limits making an object from parts or from another object.
	JoinTimeout = 2 * time.Minute
)

// Fuse ends the context of a request that stores content if the cluster does not answer. It
// runs before the body is read, between two reads, and after the body. It does not limit
// the body itself.
type Fuse struct {
	timer  *time.Timer
	answer time.Duration
}

// Burn returns a context that the fuse ends. answer is the time limit while no content is
// transferred.
func Burn(ctx context.Context, answer time.Duration) (context.Context, *Fuse, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	f := &Fuse{time.AfterFunc(answer, func() { cancel(context.DeadlineExceeded) }), answer}
	return ctx, f, func() {
		f.timer.Stop()
		cancel(context.Canceled)
	}
}

// Reader returns the body r, whose reads stop the fuse. wire is the reader of the
// connection.
func (f *Fuse) Reader(r io.Reader, wire *Patient) io.Reader { return &fused{r, f, wire} }

type fused struct {
	r    io.Reader
	f    *Fuse
	wire *Patient
}

func (r *fused) Read(p []byte) (int, error) {
	r.f.timer.Stop()
	n, err := r.r.Read(p)
	r.f.timer.Reset(SealTimeout)
	return n, err
}

// Interrupt ends the current read; the store that reads the body calls it.
func (r *fused) Interrupt() { r.wire.Interrupt() }

// Checked restarts the fuse with answer. Call it when the content is verified and only the
// proposal is left.
func (f *Fuse) Checked() { f.timer.Reset(f.answer) }
