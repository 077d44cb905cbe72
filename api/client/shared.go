package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// OpenShare returns the Vault of a recipient. The client must use the credential of the share:
// the Access of a seal.Link is its Options.Token. The Vault checks scope and permissions before
// it sends a request. The error is seal.ErrToken if the token lacks the bucket, or the storage
// key of a shared object.
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

// single reports whether the Vault belongs to a recipient of a single file.
func (v *Vault) single() bool {
	if v.grant == nil {
		return false
	}
	_, whole := v.grant.FolderKey()
	return !whole
}

// allow returns an error if the Vault belongs to a recipient without the permission for the path
// p: an error of seal.Grant.Allow, or seal.ErrPath if p is not in its shortest form. The owner
// may do everything.
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

// opener returns the key that decrypts the file at the path p. For a share it returns the error
// of allow if the share does not permit reading that file.
func (v *Vault) opener(p string) (seal.Opener, error) {
	if v.grant == nil {
		return v.identity, nil
	}
	if err := v.allow(p, seal.Read); err != nil {
		return nil, err
	}
	return v.grant.Opener(p)
}

// locate returns the storage key of the file at the path p. It looks the name up in the index,
// because files that a recipient uploaded have random storage keys. If the index lacks the name,
// it computes the key for the owner, and returns seal.ErrNotFound to a recipient.
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

// storageKey returns the storage key for an upload to the path p. The owner computes it from the
// path. A recipient uses that of the existing file, or else a random one.
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

// sharedFile returns the one file that is shared with the recipient. It calls open to read the
// metadata.
func (v *Vault) sharedFile(ctx context.Context) (Object, error) {
	name := strings.TrimPrefix(v.grant.Scope(), "/")
	_, content, err := v.open(ctx, name, "", DownloadOptions{})
	if err != nil {
		return Object{}, err
	}
	m := content.Metadata()
	return Object{Bucket: v.bucket, Key: name, Size: m.Size, Modified: m.Modified, BLAKE3: Hash(m.Hash).String()}, nil
}

// denied converts ErrDenied to ErrRevoked for the Vault of a recipient, and returns other errors
// unchanged. The Vault has checked scope and permissions itself, so a node denies access only if
// the credential is no longer valid.
func (v *Vault) denied(err error) error {
	if v.grant != nil && errors.Is(err, ErrDenied) && !errors.Is(err, ErrRevoked) {
		return &revokedError{err}
	}
	return err
}

// revokedError wraps ErrRevoked and the answer of a node. Its text does not contain the answer,
// because storage keys and nodes mean nothing to a recipient.
type revokedError struct{ answer error }

func (*revokedError) Error() string     { return ErrRevoked.Error() }
func (e *revokedError) Unwrap() []error { return []error{ErrRevoked, e.answer} }
