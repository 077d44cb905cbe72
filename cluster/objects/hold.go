package objects

import (
	"context"
	"encoding/hex"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Held is an object whose content is stored on nodes, but which has no record in the state yet.
// Leases protect the content from deletion until then. The caller must call either Commit or
// Discard, once.
type Held struct {
	objects *Objects
	kept    *kept
	object  state.Object
}

// Hold stores the content of an object, without creating the object. The caller creates it with
// Commit of the result, in a command of its own. Hold makes the checks of Put before it reads the
// body, and returns the errors of Put. It also checks r.If, but the command of Commit must
// contain the condition again.
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

// Object returns the object for the command that creates it.
func (h *Held) Object() state.Object { return h.object }

// Commit calls propose, which must commit a command that creates the object with the given
// content. It reports the outcome to the nodes that store the content. If propose returns
// state.ErrConflict, Commit renews the epochs of the content and calls propose again, up to
// maxAttempts calls in all. If propose returns no error, the nodes keep the content. After a
// *state.Error other than state.ErrUnavailable they delete it. After any other error the outcome
// is unknown, and the nodes keep the content until they know the outcome.
func (h *Held) Commit(ctx context.Context, propose func(state.Content) error) error {
	return h.objects.name(ctx, h.kept.stored, propose)
}

// Discard deletes the content.
func (h *Held) Discard() { h.kept.stored.Done(false) }
