package ipfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/ipfs/boxo/blockservice"
	"github.com/ipfs/boxo/gateway"
	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	uio "github.com/ipfs/boxo/ipld/unixfs/io"
	"github.com/ipfs/boxo/namesys"
	"github.com/ipfs/boxo/path"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

// maxListed is the largest number of entries in the HTML page of a folder. boxo has the whole list in
// memory.
const maxListed = 10_000

// backend implements gateway.IPFSBackend. It reads files with the reader of the cluster, which reuses
// memory, and leaves the rest to boxo. All requests share it; the content of a request is in its context.
type backend struct {
	*gateway.BlocksBackend

	dag ipld.DAGService
}

func newBackend() (*backend, error) {
	service := blockservice.New(blocks{}, nil)
	all, err := gateway.NewBlocksBackend(service, gateway.WithNameSystem(noSystem{}))
	if err != nil {
		return nil, fmt.Errorf("open backend: %w", err)
	}
	return &backend{all, merkledag.NewDAGService(service)}, nil
}

// WrapContextForRequest implements gateway.WithContextHint. Sessions of boxo are of no use here.
func (*backend) WrapContextForRequest(ctx context.Context) context.Context { return ctx }

// Get implements gateway.IPFSBackend.
func (b *backend) Get(ctx context.Context, p path.ImmutablePath, ranges ...gateway.ByteRange) (gateway.ContentPathMetadata, *gateway.GetResponse, error) {
	at, node, err := b.resolve(ctx, p)
	switch {
	case err != nil:
		return at, nil, err
	case node.isFile:
		f, size, err := openFile(ctx, at.LastSegment.RootCid())
		if err != nil {
			return at, nil, err
		}
		if len(ranges) > 0 { // boxo serves the first one only
			if err := seek(f, ranges[0], size); err != nil {
				return at, nil, errors.Join(err, f.Close())
			}
		}
		return at, gateway.NewGetResponseFromReader(f, size), nil
	case node.folder != nil:
		size, err := node.folder.Size()
		if err != nil {
			return at, nil, fmt.Errorf("size of a folder: %w", err)
		}
		entries, end, err := b.list(ctx, node.folder)
		if err != nil {
			return at, nil, err
		}
		return at, gateway.NewGetResponseFromDirectoryListing(size, entries, end), nil
	}
	return b.BlocksBackend.Get(ctx, p, ranges...) //nolint:wrapcheck // it is boxo's own
}

// Head implements gateway.IPFSBackend.
func (b *backend) Head(ctx context.Context, p path.ImmutablePath) (gateway.ContentPathMetadata, *gateway.HeadResponse, error) {
	at, node, err := b.resolve(ctx, p)
	switch {
	case err != nil:
		return at, nil, err
	case node.isFile:
		f, size, err := openFile(ctx, at.LastSegment.RootCid())
		if err != nil {
			return at, nil, err
		}
		return at, gateway.NewHeadResponseForFile(f, size), nil
	}
	return b.BlocksBackend.Head(ctx, p) //nolint:wrapcheck // it is boxo's own
}

// GetCAR implements gateway.IPFSBackend. The memory for a CAR grows with its blocks.
func (b *backend) GetCAR(ctx context.Context, p path.ImmutablePath, params gateway.CarParams) (gateway.ContentPathMetadata, io.ReadCloser, error) {
	requestOf(ctx).charge(params.Scope)
	return b.BlocksBackend.GetCAR(ctx, p, params) //nolint:wrapcheck // it is boxo's own
}

// GetIPNSRecord implements gateway.IPFSBackend.
func (*backend) GetIPNSRecord(context.Context, cid.Cid) ([]byte, error) {
	return nil, gateway.NewErrorStatusCode(noNames(), http.StatusNotImplemented)
}

// resolved is the node at the end of a path. Both fields are zero if boxo shall read it.
type resolved struct {
	isFile bool
	folder *merkledag.ProtoNode
}

// resolve follows a path to a node.
func (b *backend) resolve(ctx context.Context, p path.ImmutablePath) (at gateway.ContentPathMetadata, node resolved, err error) {
	if at, err = b.ResolvePath(ctx, p); err != nil || len(at.LastSegmentRemainder) > 0 {
		return at, resolved{}, err //nolint:wrapcheck // it is boxo's own
	}
	c := at.LastSegment.RootCid()
	switch c.Prefix().Codec {
	case cid.Raw:
		return at, resolved{isFile: true}, nil
	case cid.DagProtobuf:
	default:
		return at, resolved{}, nil
	}
	n, err := b.dag.Get(ctx, c)
	if err != nil {
		return at, resolved{}, fmt.Errorf("read node: %w", err)
	}
	fs, err := unixfs.ExtractFSNode(n)
	if err != nil {
		return at, resolved{}, nil //nolint:nilerr // boxo answers
	}
	at.ModTime = fs.ModTime()
	switch fs.Type() {
	case unixfs.TFile, unixfs.TRaw:
		return at, resolved{isFile: true}, nil
	case unixfs.TDirectory, unixfs.THAMTShard:
		folder, _ := n.(*merkledag.ProtoNode)
		return at, resolved{folder: folder}, nil
	}
	return at, resolved{}, nil
}

// list returns the entries of a folder. The caller calls end when it needs no more. If there are more
// than maxListed, an error is the last entry.
func (b *backend) list(ctx context.Context, folder *merkledag.ProtoNode) (entries <-chan unixfs.LinkResult, end func() error, err error) {
	dir, err := uio.NewDirectoryFromNode(b.dag, folder)
	if err != nil {
		return nil, nil, fmt.Errorf("open folder: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	all := dir.EnumLinksAsync(ctx)
	bounded := make(chan unixfs.LinkResult)
	go func() {
		defer close(bounded)
		n := 0
		for e := range all {
			if err := requestOf(ctx).listed(); err != nil {
				e = unixfs.LinkResult{Err: err}
			}
			if n++; n > maxListed {
				e = unixfs.LinkResult{Err: gateway.NewErrorStatusCode(fmt.Errorf(
					"this folder has more than %d entries, which is too long for a page: ask for an entry by its name, or for the folder with ?format=car", maxListed), http.StatusNotImplemented)}
			}
			select {
			case bounded <- e:
			case <-ctx.Done():
				return
			}
			if e.Err != nil {
				return
			}
		}
	}()
	return bounded, func() error { cancel(); return nil }, nil
}

// openFile opens a file of the content of the request.
func openFile(ctx context.Context, c cid.Cid) (io.ReadSeekCloser, int64, error) {
	q := requestOf(ctx)
	if q.dag == nil {
		return nil, 0, errors.New("the request was not checked")
	}
	f, size, err := q.dag.File(ctx, c)
	if err != nil {
		return nil, 0, q.fails(ctx, c, err)
	}
	return reading{f, ctx, c}, int64(size), nil //nolint:gosec // a size of bytes that exist
}

// reading is an open file whose errors the request remembers.
type reading struct {
	io.ReadSeekCloser

	ctx context.Context //nolint:containedctx // of the request, which the file does not outlive
	cid cid.Cid
}

// Read implements io.Reader.
func (f reading) Read(p []byte) (int, error) {
	n, err := f.ReadSeekCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = requestOf(f.ctx).fails(f.ctx, f.cid, err)
	}
	return n, err //nolint:wrapcheck // a reader
}

// seek moves to the first byte of a range. boxo checks the range against the size later.
func seek(f io.Seeker, r gateway.ByteRange, size int64) error {
	from := r.From
	if from < 0 {
		from = max(0, size+from)
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return fmt.Errorf("seek: %w", err)
	}
	return nil
}

// errReadOnly is the error of methods that boxo does not call for a gateway.
var errReadOnly = errors.New("the gateway only reads blocks by their CIDs")

// blocks is the blockstore that boxo reads from. The content of a request is in the context.
type blocks struct{}

// Get implements blockstore.Blockstore.
func (blocks) Get(ctx context.Context, c cid.Cid) (block.Block, error) {
	return requestOf(ctx).get(ctx, c)
}

// Has implements blockstore.Blockstore.
func (b blocks) Has(ctx context.Context, c cid.Cid) (bool, error) {
	_, err := b.Get(ctx, c)
	if ipld.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// GetSize implements blockstore.Blockstore.
func (b blocks) GetSize(ctx context.Context, c cid.Cid) (int, error) {
	found, err := b.Get(ctx, c)
	if err != nil {
		return 0, err
	}
	return len(found.RawData()), nil
}

// Put implements blockstore.Blockstore.
func (blocks) Put(context.Context, block.Block) error { return errReadOnly }

// PutMany implements blockstore.Blockstore.
func (blocks) PutMany(context.Context, []block.Block) error { return errReadOnly }

// DeleteBlock implements blockstore.Blockstore.
func (blocks) DeleteBlock(context.Context, cid.Cid) error { return errReadOnly }

// AllKeysChan implements blockstore.Blockstore.
func (blocks) AllKeysChan(context.Context) (<-chan cid.Cid, error) { return nil, errReadOnly }

// noSystem implements namesys.NameSystem for a gateway that resolves no names. A gateway calls only Resolve.
type noSystem struct{ namesys.NameSystem }

// Resolve implements namesys.Resolver.
func (noSystem) Resolve(context.Context, path.Path, ...namesys.ResolveOption) (namesys.Result, error) {
	return namesys.Result{}, gateway.NewErrorStatusCode(noNames(), http.StatusNotImplemented)
}
