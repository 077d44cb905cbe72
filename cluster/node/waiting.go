package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
	mh "github.com/multiformats/go-multihash"
)

// waitingFile contains the multihashes, one after the other, of the roots that were still in the
// queue for announcements to the IPFS network when the node stopped.
const waitingFile = "waiting"

// waiting returns the multihashes in waitingFile. If it returns an error, these roots are only
// announced with the next announcement of all roots.
func (f folder) waiting() (hashes []mh.Multihash, err error) {
	b, err := os.ReadFile(f.file(waitingFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for err == nil && len(b) > 0 {
		var n int
		var hash mh.Multihash
		if n, hash, err = mh.MHFromBytes(b); err == nil {
			hashes, b = append(hashes, hash), b[n:]
		}
	}
	if err != nil {
		err = fmt.Errorf("read %s: %w", waitingFile, err)
	}
	return hashes, err
}

// keepWaiting writes hashes to waitingFile in place of its old content. Without hashes it deletes
// the file.
func (f folder) keepWaiting(hashes []mh.Multihash) error {
	var b []byte
	for _, hash := range hashes {
		b = append(b, hash...)
	}
	var err error
	if len(b) == 0 {
		err = durable.RemoveAll(f.file(waitingFile))
	} else {
		err = durable.WriteFile(f.file(waitingFile), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep %s: %w", waitingFile, err)
	}
	return nil
}
