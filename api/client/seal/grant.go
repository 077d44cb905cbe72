package seal

import (
	"fmt"
	"strings"
)

// Permission is one action that a token can grant.
type Permission int

// Permissions of a token.
const (
	Read Permission = iota
	Write
	Delete
)

// String returns the name of the permission.
func (p Permission) String() string {
	switch p {
	case Read:
		return "read"
	case Write:
		return "write"
	case Delete:
		return "delete"
	}
	return fmt.Sprintf("Permission(%d)", int(p))
}

// Allows reports whether the permissions include p.
func (g Permissions) Allows(p Permission) bool {
	return p == Read && g.Read || p == Write && g.Write || p == Delete && g.Delete
}

// Grant is the right of a recipient from a token that was verified and whose key was opened.
type Grant struct {
	token *Token
	key   [keySize]byte
	scope string // path of the shared folder or object, as CleanPath returns it
}

// Token returns the token from which the grant was made.
func (g *Grant) Token() *Token { return g.token }

// Scope returns the path of the shared folder or object.
func (g *Grant) Scope() string { return g.scope }

// String describes the grant without its key.
func (g *Grant) String() string { return "grant " + g.token.ShareID + " of " + g.scope }

// GoString describes the grant without its key.
func (g *Grant) GoString() string { return "seal.Grant{" + g.token.ShareID + "}" }

// Allow checks that the grant covers a path and a permission, and returns the path as [CleanPath]
// does. The error is [ErrPathEscape] or [ErrPath] of CleanPath, [ErrPathScope] if the path is not
// in the scope, compared by whole segments, or [ErrPermission].
func (g *Grant) Allow(path string, p Permission) (string, error) {
	path, err := CleanPath(path)
	if err != nil {
		return "", err
	}
	if _, ok := within(g.scope, path); !ok {
		return "", fmt.Errorf("%w: %s is not in %s", ErrPathScope, path, g.scope)
	}
	if !g.token.Permissions.Allows(p) {
		return "", fmt.Errorf("%w: %v", ErrPermission, p)
	}
	return path, nil
}

// Opener returns the key that opens the object at a path. The error is that of [Grant.Allow] for
// reading.
func (g *Grant) Opener(path string) (Opener, error) {
	path, err := g.Allow(path, Read)
	if err != nil {
		return nil, err
	}
	folder, ok := g.FolderKey()
	if !ok {
		return DataKey(g.key), nil
	}
	return folder.Folder(parent(path))
}

// FolderKey returns the key of the shared folder. It opens the index of names, and a recipient
// who uploads must set it as the Folder of an [Object]. The second result is false if the grant
// shares a single object.
func (g *Grant) FolderKey() (FolderKey, bool) {
	return FolderKey{key: g.key, path: g.scope}, g.token.kind == keyKindFolder
}

// StorageKey returns a random storage key for a new file at a path; only the owner can compute
// one from the path. The error is that of [Grant.Allow] for writing.
func (g *Grant) StorageKey(path string) (string, error) {
	path, err := g.Allow(path, Write)
	if err != nil {
		return "", err
	}
	return storageKey([keySize]byte{}, RandomUUID, path)
}

// scopeOf returns the scope of a token as [CleanPath] does. It adds the first slash if it is
// missing, because other implementations may omit it.
func scopeOf(scope string) (string, error) {
	if !strings.HasPrefix(scope, "/") {
		scope = "/" + scope
	}
	return CleanPath(scope)
}
