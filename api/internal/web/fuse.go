package web

import (
	"context"
	"io"
	"time"
)

// Bounds of use cases that move content. What moves it is bounded by the client
// that has to go on sending (StallTimeout); these are for the rest.
const (
	// SealTimeout bounds the time until the next piece of a body is asked for, and
	// that from its end until its content is durable on enough nodes, which have
	// most of it by then.
	SealTimeout = 2 * time.Minute
	// JoinTimeout bounds making an object of parts, or of another object.
	JoinTimeout = 2 * time.Minute
)

// Fuse ends the context of a request whose content is stored when the cluster does
// not answer: before the first byte of the body is asked for, between two pieces of
// it, between the last one and the check of it, and after that. A body itself may
// take as long as it takes.
type Fuse struct {
	timer  *time.Timer
	answer time.Duration
}

// Burn returns a context that ends with the fuse, which answer bounds where no content is moved.
func Burn(ctx context.Context, answer time.Duration) (context.Context, *Fuse, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	f := &Fuse{time.AfterFunc(answer, func() { cancel(context.DeadlineExceeded) }), answer}
	return ctx, f, func() {
		f.timer.Stop()
		cancel(context.Canceled)
	}
}

// Reader is a body that stops the fuse while it is read, and comes over wire.
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

// Interrupt ends the reading, on behalf of the store that consumes the body.
func (r *fused) Interrupt() { r.wire.Interrupt() }

// Checked is called when nothing is left but to name the content.
func (f *Fuse) Checked() { f.timer.Reset(f.answer) }
