package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// CARs imports and exports CAR files.
type CARs interface {
	// ImportCAR imports the blocks of a CAR. When it returns, all blocks are durable on this node,
	// and the DAGs of all roots are complete in the cluster.
	ImportCAR(ctx context.Context, r io.Reader) (content.CAR, error)
	// ExportCAR writes the DAG with the CID text as a CARv1. It reads blocks from this node or from
	// other members. It writes nothing before it has read the root.
	ExportCAR(ctx context.Context, w io.Writer, text string) error
	// ExportCARFor works like ExportCAR, with the rights of an account. It returns
	// state.ErrNotFound for content that the account may not read, as for content that does not
	// exist.
	ExportCARFor(ctx context.Context, w io.Writer, account state.AccountID, text string) error
}

// CAR is the answer to the import of a CAR file.
type CAR struct {
	Roots  []string `json:"roots"`  // CIDs of the distinct roots, in the order of the header
	Blocks uint64   `json:"blocks"` // number of blocks in the file
	Bytes  uint64   `json:"bytes"`  // size of these blocks
}

// importCAR answers POST /car: it imports the blocks of the CAR in the body. A user in the query must
// exist. The client pins the roots afterwards.
func (p *operator) importCAR(w http.ResponseWriter, r *http.Request) error {
	query, err := queryOf(r)
	if err != nil {
		return err
	}
	if query.Has("user") {
		if _, err := Local(p.opts.Accounts)(r.Context(), r); err != nil {
			return err
		}
	}
	car, err := p.opts.Files.ImportCAR(r.Context(), r.Body)
	if bad := (*state.Error)(nil); errors.Is(err, state.ErrInvalid) && errors.As(err, &bad) {
		return web.Errorf(http.StatusUnprocessableEntity, "INVALID_CAR", "%s", bad.Detail) // 400 would blame the command line
	}
	if err != nil {
		return fmt.Errorf("import CAR: %w", err)
	}
	answer := CAR{Blocks: car.Blocks, Bytes: car.Bytes}
	for _, root := range car.Roots {
		answer.Roots = append(answer.Roots, root.String())
	}
	return web.JSON(w, http.StatusCreated, answer)
}

// exportCAR answers GET /car/{cid} with the DAG as a CAR. It sends the header with the first bytes.
// The size of a CAR is not known in advance, so a later error is in the trailer FailureTrailer.
func (p *operator) exportCAR(w http.ResponseWriter, r *http.Request) error {
	query, err := queryOf(r)
	if err != nil {
		return err
	}
	cid := r.PathValue("cid")
	body := &stream{w: w, header: func(h http.Header) {
		h.Set("Content-Type", web.CARType)
		h.Set("X-Holdfast-Cid", url.PathEscape(cid))
	}}
	if query.Has("user") {
		who, err := Local(p.opts.Accounts)(r.Context(), r)
		if err != nil {
			return err
		}
		err = p.opts.Files.ExportCARFor(r.Context(), body, who.Account, cid)
		return p.exported(body, r, err)
	}
	return p.exported(body, r, p.opts.Files.ExportCAR(r.Context(), body, cid))
}

// exported ends the answer to an export. If the body has begun, the error err becomes a trailer, and
// exported logs it.
func (p *operator) exported(body *stream, r *http.Request, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("export CAR: %w", err)
	if !body.fail(r.Context(), err) {
		return err
	}
	p.opts.Logger.ErrorContext(r.Context(), "an export has ended early", "cid", r.PathValue("cid"), "err", err)
	return nil
}
