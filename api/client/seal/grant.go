package seal

import (
	"fmt"
	"strings"
)

// Permission is one thing that a token can grant.
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

// Allows reports whether p is granted.
func (g Permissions) Allows(p Permission) bool {
	return p == Read && g.Read || p == Write && g.Write || p == Delete && g.Delete
}

// Grant is a token that was verified and opened.
type Grant struct {
	token *Token
	key   [keySize]byte
	scope string // clean
}

// Token returns the token of the grant.
func (g *Grant) Token() *Token { return g.token }

// Scope returns the folder that is shared.
func (g *Grant) Scope() string { return g.scope }

// String hides the key.
func (g *Grant) String() string { return "grant " + g.token.ShareID + " of " + g.scope }

// GoString hides the key.
func (g *Grant) GoString() string { return "seal.Grant{" + g.token.ShareID + "}" }

// Allow checks a path and returns its clean form: dot segments are resolved and escapes refused
// ([ErrPathEscape], [ErrPath]), the path is compared with the scope by whole segments
// ([ErrPathScope]), then the permission ([ErrPermission]).
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

// Opener returns what opens the object of a path, after the checks of [Grant.Allow] for reading.
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

// FolderKey returns the key of the shared folder: it opens the index of names, and it is the
// Folder of an [Object] that the recipient uploads. It is false if one object is shared.
func (g *Grant) FolderKey() (FolderKey, bool) {
	return FolderKey{key: g.key, path: g.scope}, g.token.kind == keyKindFolder
}

// scopeOf is CleanPath for a scope, which other implementations may write without its first slash.
func scopeOf(scope string) (string, error) {
	if !strings.HasPrefix(scope, "/") {
		scope = "/" + scope
	}
	return CleanPath(scope)
}
