package seal

import (
	"errors"
	"io"
)

// pieces is a reader of bytes that the function more produces in pieces.
type pieces struct {
	ready []byte // bytes of the current piece that Read has not returned yet
	err   error  // error that Read returns after ready
	more  func() // produces the next piece: sets ready, err, or both
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

// WriteTo implements io.WriterTo. It saves io.Copy the copy of each piece into a buffer.
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
