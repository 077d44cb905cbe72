package seal

import (
	"errors"
	"io"
)

// pieces is a reader of bytes that more makes piece by piece.
type pieces struct {
	ready []byte // part of the piece that Read returns next
	err   error  // error that Read returns after ready
	more  func() // sets ready, err, or both
}

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	for len(p.ready) == 0 {
		if p.err != nil {
			return 0, p.err
		}
		p.more()
	}
	n := copy(b, p.ready)
	p.ready = p.ready[n:]
	return n, nil
}

// WriteTo implements io.WriterTo, so that io.Copy does not copy each piece into a buffer.
func (p *pieces) WriteTo(w io.Writer) (written int64, err error) {
	for {
		n, err := w.Write(p.ready)
		written += int64(n)
		p.ready = p.ready[n:]
		if err != nil {
			return written, err
		}
		if errors.Is(p.err, io.EOF) {
			return written, nil
		}
		if p.err != nil {
			return written, p.err
		}
		p.more()
	}
}
