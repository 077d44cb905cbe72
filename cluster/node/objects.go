package node

import (
	"context"
	"io"

	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// intake adapts ingest.Ingest to the interface objects.Content.
type intake struct{ *ingest.Ingest }

// Store implements objects.Content.
func (i intake) Store(ctx context.Context, body io.Reader, place ingest.Placement) (objects.Kept, error) {
	s, err := i.Ingest.Store(ctx, body, place)
	if err != nil {
		return nil, err
	}
	return stored{s}, nil
}

// Join implements objects.Content.
func (i intake) Join(ctx context.Context, parts []ingest.File, place ingest.Placement) (objects.Kept, error) {
	s, err := i.Ingest.Join(ctx, parts, place)
	if err != nil {
		return nil, err
	}
	return stored{s}, nil
}

// stored adapts ingest.Stored to the interface objects.Kept.
type stored struct{ *ingest.Stored }

// Content implements objects.Kept.
func (s stored) Content() state.Content { return s.Stored.Content }

// Size implements objects.Kept.
func (s stored) Size() uint64 { return s.Stored.Size }
