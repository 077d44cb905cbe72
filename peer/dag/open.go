package dag

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	unixfsio "github.com/ipfs/boxo/ipld/unixfs/io"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

// readAhead is how many blocks a reader fetches at the same time; the UnixFS
// reader asks for ten at once.
const readAhead = 10

// Ahead bounds what files read ahead, all together: the UnixFS reader may hold 15
// blocks of each, for as long as who reads it takes. Files beyond the bound read a
// block when they need it.
type Ahead struct{ files chan struct{} }

// NewAhead lets so many files read ahead at a time.
func NewAhead(files int) *Ahead { return &Ahead{make(chan struct{}, files)} }

// File reads a UnixFS file or a raw block. It is for one goroutine.
type File struct {
	r     unixfsio.DagReader
	ahead *ahead
}

// Open prepares a file for reading and seeking; blocks are read ahead as the
// reading goes on. The root is read now, so an error comes before anything
// is answered: ErrIsDirectory, ErrNotFile, ErrUnsupportedCodec, or what from
// returned. ctx lives until Close.
func Open(ctx context.Context, from Getter, root cid.Cid) (*File, error) {
	return (*Ahead)(nil).Open(ctx, from, root)
}

// Open is Open of a file that reads ahead only within the bound.
func (all *Ahead) Open(ctx context.Context, from Getter, root cid.Cid) (*File, error) {
	ctx, cancel := context.WithCancel(ctx)
	a := &ahead{from: from, cancel: cancel, slots: make(chan struct{}, readAhead), all: all}
	node, err := a.Get(ctx, root)
	if err != nil {
		a.close()
		return nil, fmt.Errorf("dag: open %s: %w", root, err)
	}
	r, err := unixfsio.NewDagReader(ctx, node, a)
	if err != nil {
		a.close()
		switch {
		case errors.Is(err, unixfsio.ErrIsDir):
			return nil, fmt.Errorf("dag: open %s: %w", root, ErrIsDirectory)
		case ipld.IsNotFound(err):
			return nil, fmt.Errorf("dag: open %s: %w", root, err)
		default:
			return nil, fmt.Errorf("dag: open %s: %w: %w", root, ErrNotFile, err)
		}
	}
	return &File{r: r, ahead: a}, nil
}

// Size returns the length of the file in bytes.
func (f *File) Size() uint64 { return f.r.Size() }

// Read implements io.Reader.
func (f *File) Read(b []byte) (int, error) { return f.r.Read(b) }

// WriteTo implements io.WriterTo; it saves the copy that Read makes.
func (f *File) WriteTo(w io.Writer) (int64, error) { return f.r.WriteTo(w) }

// Seek implements io.Seeker.
func (f *File) Seek(offset int64, whence int) (int64, error) { return f.r.Seek(offset, whence) }

// Close ends the reading ahead and waits for it.
func (f *File) Close() error {
	err := f.r.Close()
	f.ahead.close()
	return err
}

// ahead is the node getter of a File.
type ahead struct {
	from   Getter
	cancel context.CancelFunc
	slots  chan struct{}
	reads  sync.WaitGroup
	all    *Ahead // nil: no bound

	// mu guards may.
	mu  sync.Mutex
	may bool // it counts among the files of all
}

func (a *ahead) close() {
	a.cancel()
	a.reads.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.may {
		a.may = false
		<-a.all.files
	}
}

// mayReadAhead tells whether the file is one of those that may, as soon as there is
// room for it and until it is closed.
func (a *ahead) mayReadAhead() bool {
	if a.all == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.may {
		select {
		case a.all.files <- struct{}{}:
			a.may = true
		default:
		}
	}
	return a.may
}

// Get implements ipld.NodeGetter.
func (a *ahead) Get(ctx context.Context, c cid.Cid) (ipld.Node, error) {
	b, inlined, err := inline(c)
	if err == nil && !inlined {
		b, err = get(ctx, a.from, c)
	}
	if err != nil {
		return nil, err
	}
	switch codec := c.Prefix().Codec; codec {
	case cid.Raw:
		return merkledag.DecodeRawBlock(b)
	case cid.DagProtobuf:
		n, err := merkledag.DecodeProtobufBlock(b)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrInvalidBlock, c, err)
		}
		if p, ok := n.(*merkledag.ProtoNode); ok {
			if _, err := unixfs.FSNodeFromBytes(p.Data()); err != nil {
				return nil, fmt.Errorf("%w: %s: %w", ErrNotFile, c, err)
			}
		}
		return n, nil
	case cid.DagCBOR, cid.DagJSON:
		return nil, fmt.Errorf("%w: codec 0x%x", ErrNotFile, codec)
	default:
		return nil, fmt.Errorf("%w: 0x%x", ErrUnsupportedCodec, codec)
	}
}

// GetMany implements ipld.NodeGetter: it reads in parallel, a bounded number
// at a time. Without reading ahead it reads the first, and says of the others that
// they were canceled: when the UnixFS reader comes to one of these it asks anew.
func (a *ahead) GetMany(ctx context.Context, cids []cid.Cid) <-chan *ipld.NodeOption {
	out := make(chan *ipld.NodeOption, len(cids))
	if len(cids) > 1 && !a.mayReadAhead() {
		a.reads.Go(func() {
			defer close(out)
			n, err := a.Get(ctx, cids[0])
			out <- &ipld.NodeOption{Node: n, Err: err}
			if err == nil {
				out <- &ipld.NodeOption{Err: context.Canceled}
			}
		})
		return out
	}
	var many sync.WaitGroup
	a.reads.Go(func() {
		defer close(out)
		defer many.Wait()
		for _, c := range cids {
			select {
			case a.slots <- struct{}{}:
			case <-ctx.Done():
				out <- &ipld.NodeOption{Err: ctx.Err()}
				return
			}
			many.Go(func() {
				defer func() { <-a.slots }()
				n, err := a.Get(ctx, c)
				out <- &ipld.NodeOption{Node: n, Err: err}
			})
		}
	})
	return out
}
