package s3

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// getBao answers GET ?bao, an extension of the S3 API, with a Bao encoding of an object. With the
// parameters start and length it is a slice, otherwise the outboard encoding. A client that knows
// the BLAKE3 hash of the object can verify the bytes with it as they arrive.
func (s *surface) getBao(w http.ResponseWriter, r *request) error {
	return s.reading(r, func(o *state.Object) error { return s.answerWithBao(w, r, o) })
}

func (s *surface) answerWithBao(w http.ResponseWriter, r *request, o *state.Object) (err error) {
	if answered, err := conditional(w, r, o); answered || err != nil {
		return err
	}
	slice, err := sliceOf(r.query, o)
	if err != nil {
		return err
	}
	held := s.limits.HoldContent(r.account())
	defer held.Release()
	if err := held.Grow(blockOf(o) + objects.BaoMemory(o, slice)); err != nil {
		return err
	}
	e, err := s.objects.Bao(r.Context(), r.account(), o, slice)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	out := &beginning{to: web.NewSteady(w, s.stall), begin: func() {
		h := w.Header()
		identify(h, o)
		h.Set("X-Holdfast-Blake3", hex.EncodeToString(e.Blake3[:])) // also if the record of the object has no hash yet
		h.Set("Last-Modified", httpTime(o.Created))
		h.Set("Content-Type", defaultType)
		h.Set("Content-Length", strconv.FormatInt(e.Size(), 10))
		w.WriteHeader(http.StatusOK)
	}}
	if _, err := e.WriteTo(out); err != nil {
		return fmt.Errorf("write Bao encoding: %w", err)
	}
	return nil
}

// beginning is a writer that calls begin before the first Write. So the answer begins only when
// the content is available, and an earlier failure still gets an error answer.
type beginning struct {
	to    io.Writer
	begin func() // nil after the first Write
}

func (b *beginning) Write(p []byte) (int, error) {
	if b.begin != nil {
		b.begin()
		b.begin = nil
	}
	return b.to.Write(p)
}

// sliceOf parses the parameters start and length of GET ?bao. It returns nil if both are absent.
// A slice may extend past the end of the object, but must start within it; for an empty object it
// may start at 0.
func sliceOf(q query, o *state.Object) (*objects.Slice, error) {
	if q.has("partNumber") {
		return nil, errorf(InvalidArgument, "partNumber and bao do not go together")
	}
	from, begins := q.find("start")
	length, ends := q.find("length")
	if !begins && !ends {
		return nil, nil
	}
	start, ok := web.Decimal(from)
	if !ok {
		return nil, errorf(InvalidArgument, "start has to be a number from 0 on, and there has to be one with length")
	}
	count, ok := web.Decimal(length)
	if !ok || count == 0 {
		return nil, errorf(InvalidArgument, "length has to be a number from 1 on, and there has to be one with start")
	}
	if uint64(start) >= o.Size && (start > 0 || o.Size > 0) {
		return nil, unsatisfiable("", int64(o.Size))
	}
	return &objects.Slice{Start: uint64(start), Count: uint64(count)}, nil
}
