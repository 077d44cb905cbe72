package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// OpenShare returns the Vault of a recipient. The client needs the credential of the share, which is
// the Access of a seal.Link. The Vault checks scope and permissions before it sends a request. The
// error is seal.ErrToken if the token does not name its bucket, or the storage key of its object.
func (c *Client) OpenShare(g *seal.Grant) (*Vault, error) {
	token := g.Token()
	folder, whole := g.FolderKey()
	if token.Bucket == "" || !whole && token.StorageKey == "" {
		return nil, fmt.Errorf("%w: it does not say where the files are", seal.ErrToken)
	}
	to, err := token.Owner.PublicKey()
	if err != nil {
		return nil, err
	}
	return &Vault{
		client: c, bucket: token.Bucket, grant: g, to: to, folders: folder,
		indexes: map[string]*seal.Index{}, known: map[string]bool{g.Scope(): true},
	}, nil
}

// single reports whether the Vault is of a recipient of one file.
func (v *Vault) single() bool {
	if v.grant == nil {
		return false
	}
	_, whole := v.grant.FolderKey()
	return !whole
}

// allow returns the error of a recipient who has no permission for a path. Names are in their
// shortest form, so a path that seal.Grant.Allow would change is refused.
func (v *Vault) allow(p string, permission seal.Permission) error {
	if v.grant == nil {
		return nil
	}
	clean, err := v.grant.Allow(p, permission)
	if err == nil && clean != p {
		err = fmt.Errorf("%w: %.64q", seal.ErrPath, p)
	}
	return err
}

// opener returns the key that opens the file at a path.
func (v *Vault) opener(p string) (seal.Opener, error) {
	if v.grant == nil {
		return v.identity, nil
	}
	if err := v.allow(p, seal.Read); err != nil {
		return nil, err
	}
	return v.grant.Opener(p)
}

// locate returns the storage key of the file at a path. The index has the storage key of a file that
// a recipient uploaded. If the index lacks the name, the owner computes the storage key. The error is
// seal.ErrNotFound if a recipient cannot find the file.
func (v *Vault) locate(ctx context.Context, p string) (string, error) {
	if v.single() {
		return v.grant.Token().StorageKey, nil
	}
	folder, base := split(p)
	x, err := v.index(folder)
	if err != nil {
		return "", err
	}
	e, err := x.Lookup(ctx, base)
	switch {
	case err == nil && e.StorageKey != "":
		return e.StorageKey, nil
	case err != nil && !errors.Is(err, seal.ErrNotFound):
		return "", v.denied(err)
	case v.grant != nil:
		return "", seal.ErrNotFound
	}
	return v.identity.StorageKey(seal.DeterministicHash, p)
}

// storageKey returns the storage key for an upload to a path. A recipient keeps the storage key of a
// file that is there.
func (v *Vault) storageKey(ctx context.Context, p string) (string, error) {
	if v.grant == nil {
		return v.identity.StorageKey(seal.DeterministicHash, p)
	}
	if err := v.allow(p, seal.Write); err != nil {
		return "", err
	}
	if v.single() {
		return "", ErrSharedFile
	}
	key, err := v.locate(ctx, p)
	if errors.Is(err, seal.ErrNotFound) {
		return v.grant.StorageKey(p)
	}
	return key, err
}

// sharedFile describes the one file that is shared.
func (v *Vault) sharedFile(ctx context.Context) (Object, error) {
	name := strings.TrimPrefix(v.grant.Scope(), "/")
	_, content, err := v.open(ctx, name, "", DownloadOptions{})
	if err != nil {
		return Object{}, err
	}
	m := content.Metadata()
	return Object{Bucket: v.bucket, Key: name, Size: m.Size, Modified: m.Modified, BLAKE3: Hash(m.Hash).String()}, nil
}

// denied turns a refusal of the nodes into ErrRevoked for a recipient: the Vault has checked scope
// and permissions, so the nodes refuse only a credential that is no longer valid.
func (v *Vault) denied(err error) error {
	if v.grant != nil && errors.Is(err, ErrDenied) && !errors.Is(err, ErrRevoked) {
		return &revokedError{err}
	}
	return err
}

// revokedError is ErrRevoked with the answer of a node. Its text has nothing of the answer, because a
// recipient knows neither the storage keys nor the nodes.
type revokedError struct{ answer error }

func (*revokedError) Error() string     { return ErrRevoked.Error() }
func (e *revokedError) Unwrap() []error { return []error{ErrRevoked, e.answer} }
