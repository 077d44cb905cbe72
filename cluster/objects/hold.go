package objects

import (
	"context"
	"encoding/hex"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Held is an object whose content is stored under leases and that no command has named yet. The caller
// calls Commit or Discard, once.
type Held struct {
	objects *Objects
	kept    *kept
	object  state.Object
}

// Hold stores the content of an object; a later Commit of the result gives the object its name. Hold makes the
// checks of Put before it reads the body, and returns the errors of Put. It also checks the condition of the
// request, which the command of Commit has to carry again.
func (o *Objects) Hold(ctx context.Context, a state.AccountID, bucket string, r PutRequest) (*Held, error) {
	b, err := o.known(ctx, a, bucket)
	if err != nil {
		return nil, err
	}
	if err := o.precheckQuota(ctx, a, &b, r.Key, r.Body.Size, r.If); err != nil {
		return nil, err
	}
	id := o.opts.NewID()
	kept, err := o.store(ctx, id, nil, &r.Body, 0)
	if err != nil {
		return nil, err
	}
	return &Held{o, kept, state.Object{
		ID: state.VersionID(id), Key: r.Key, Root: kept.stored.Content().Root, Size: kept.stored.Size(), Created: o.now(),
		ETag: hex.EncodeToString(kept.sums.MD5[:]), Checksums: kept.checksums, Blake3: kept.digests.Blake3(),
		Headers: r.Attributes.Headers, Meta: r.Attributes.Meta, Tags: r.Attributes.Tags, StorageClass: r.Attributes.StorageClass,
	}}, nil
}

// Object returns the object as a command has to put it.
func (h *Held) Object() state.Object { return h.object }

// Commit calls propose with the content, and reports the outcome to its holders. It calls propose
// again, with renewed epochs, while the error is state.ErrConflict, maxAttempts times in all. The
// content stays if propose returns no error. If the error is a *state.Error other than
// state.ErrUnavailable, the content is dropped. With any other error the outcome is unknown, and the
// holders keep the content until that is settled.
func (h *Held) Commit(ctx context.Context, propose func(state.Content) error) error {
	return h.objects.name(ctx, h.kept.stored, propose)
}

// Discard drops the content.
func (h *Held) Discard() { h.kept.stored.Done(false) }
