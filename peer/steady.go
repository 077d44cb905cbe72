package peer

import (
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
)

// steadyBytes is how many bytes of a block must be sent or received within blockTimeout. The whole
// block may take longer, because on a slow line many blocks are transferred at the same time.
const steadyBytes = 128 << 10

// steadyReader reads from a stream through in. It extends the read deadline whenever
// steadyBytes have arrived.
type steadyReader struct {
	in     io.Reader
	stream network.Stream
	come   int              // bytes since the deadline was set
	last   func() time.Time // latest deadline; nil means none
}

// Read implements io.Reader.
func (r *steadyReader) Read(p []byte) (int, error) {
	if r.come >= steadyBytes {
		at := time.Now().Add(blockTimeout)
		if r.last != nil {
			if last := r.last(); last.Before(at) {
				at = last
			}
		}
		if err := r.stream.SetReadDeadline(at); err != nil {
			return 0, err
		}
		r.come = 0
	}
	n, err := r.in.Read(p[:min(len(p), steadyBytes-r.come)])
	r.come += n
	return n, err
}

// steadyWriter writes to a stream. It extends the write deadline as bytes are sent.
type steadyWriter struct{ stream network.Stream }

// Write implements io.Writer.
func (w steadyWriter) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		if err := w.stream.SetWriteDeadline(time.Now().Add(blockTimeout)); err != nil {
			return written, err
		}
		n, err := w.stream.Write(p[:min(len(p), steadyBytes)])
		written += n
		if err != nil {
			return written, err
		}
		p = p[n:]
	}
	return written, nil
}
