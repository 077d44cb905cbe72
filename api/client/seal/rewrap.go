package seal

import (
	"encoding/json"
	"fmt"
)

// Rewrap returns the header h of an object with the data key wrapped for the public key to. old
// opens the data key. Content, nonces and private metadata stay the same, so the caller replaces
// only the header of the object. folder is a folder key of the new identity for the bucket or a
// folder above the object; with nil only the owner can open the object. Members of the header
// that this package does not know are preserved. The error is an error of [Open], or
// [ErrPathScope] if folder is not above the object.
//
// The old key still opens a copy of the old header, and so the content that was copied with it.
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

// keepUnknown returns written with those members of rest that this package does not know.
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
