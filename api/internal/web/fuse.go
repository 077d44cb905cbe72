package web

import (
	"context"
	"io"
	"time"
)

// Time limits of requests that store content. They bound the waits for the cluster; StallTimeout
// bounds the waits for the client.
const (
	// SealTimeout limits the time from the end of a body until its content is durable on enough
	// nodes. Most of the content is on these nodes already when the body ends. It also limits the
	// time between two reads of a body.
	SealTimeout = 2 * time.Minute
	// JoinTimeout limits the time to make an object from parts or from another object.
	JoinTimeout = 2 * time.Minute
)

// Fuse is a timer that cancels the context of a request that stores content if the cluster does
// not answer in time. The timer runs before the body is read, between two reads, and after the
// body. It stops during each read, because a Patient bounds the wait for the client.
type Fuse struct {
	timer  *time.Timer
	answer time.Duration // limit before the first read, and after Checked
}

// Burn starts a Fuse and returns the context that it cancels, with context.DeadlineExceeded as
// the cause. answer is the time limit until the first read of the body, and after Checked. The
// caller must call the CancelFunc at the end.
func Burn(ctx context.Context, answer time.Duration) (context.Context, *Fuse, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	f := &Fuse{time.AfterFunc(answer, func() { cancel(context.DeadlineExceeded) }), answer}
	return ctx, f, func() {
		f.timer.Stop()
		cancel(context.Canceled)
	}
}

// Reader returns a reader of r that stops the fuse during each Read and restarts it with
// SealTimeout afterwards. wire is the reader of the same body directly on the connection.
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

// Interrupt makes the current and all later reads fail. The code that stores the body calls it to
// stop early.
func (r *fused) Interrupt() { r.wire.Interrupt() }

// Checked restarts the fuse with the time limit answer of Burn. The caller calls it when the
// content is verified and only the Raft proposal remains.
func (f *Fuse) Checked() { f.timer.Reset(f.answer) }
