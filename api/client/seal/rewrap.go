package seal

import (
	"encoding/json"
	"fmt"
)

// Rewrap returns a header that opens with the keys of to, and no longer with those of old. The
// content, its nonces and its private metadata stay, so that only the header of the object has to
// be replaced. folder is the key of the bucket, or of a folder above the object, of the new
// identity, and nil if only the owner is to open it. Members that this package does not know are
// kept. The error is that of [Open], or [ErrPathScope] if folder is not above the object.
//
// A copy of an old header still opens with the old key, as does content that was copied with it.
func Rewrap(h Header, storageKey string, old Opener, to PublicKey, folder *FolderKey) (Header, error) {
	c, err := Open(old, h, storageKey, Options{Bare: true})
	if err != nil {
		return "", err
	}
	next := *c.h
	next.Version %= versionHybrid
	if to.Hybrid() {
		next.Version += versionHybrid
	}
	if next.Wrapped, err = wrapKey(to, c.key, []byte(aadDataKey)); err != nil {
		return "", err
	}
	next.Folder = nil
	if folder != nil {
		if c.bare {
			return "", ErrNoMetadata
		}
		own, err := folder.Folder(parent(c.m.Path))
		if err != nil {
			return "", err
		}
		next.Folder = own.wrap(c.key, storageKey)
	}
	written, err := next.encode()
	if err != nil {
		return "", err
	}
	return keepUnknown(written, c.h.rest)
}

// keepUnknown adds the members of rest that written is not about.
func keepUnknown(written Header, rest fields) (Header, error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(written), &members); err != nil {
		return "", err
	}
	added := false
	for name, value := range rest {
		if _, own := members[name]; !own && name != "folder_key" && name != "private_metadata" {
			members[name], added = value, true
		}
	}
	if !added {
		return written, nil
	}
	text, err := json.Marshal(members)
	if err != nil {
		return "", err
	}
	if len(text) > MaxHeader {
		return "", fmt.Errorf("%w: encryption header of %d bytes", ErrTooLarge, len(text))
	}
	return Header(text), nil
}
