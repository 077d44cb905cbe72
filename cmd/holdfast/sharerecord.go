package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-ipfs/holdfast/config"
)

// recordOf returns the path of the file in which this machine stores the record of the share id.
// The nodes do not know the path and the recipient of a share, so share ls reads them from the
// record.
func (a *app) recordOf(id string) (string, error) {
	state, err := config.StateDir(a.environ)
	if err != nil {
		return "", err
	}
	return filepath.Join(state, "shares", id+".json"), nil
}

// remember stores the record of a share that this machine has created, without the secret link.
func (a *app) remember(m madeShare) error {
	m.Link = ""
	path, err := a.recordOf(m.ID)
	if err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}

// remembered returns the record of the share id. ok is false if this machine has no readable
// record.
func (a *app) remembered(id string) (m madeShare, ok bool) {
	path, err := a.recordOf(id)
	if err != nil || !shareID.MatchString(id) {
		return m, false
	}
	text, err := os.ReadFile(path)
	return m, err == nil && json.Unmarshal(text, &m) == nil
}

// forget deletes the record of the share id, if there is one.
func (a *app) forget(id string) error {
	path, err := a.recordOf(id)
	if err != nil || !shareID.MatchString(id) {
		return nil //nolint:nilerr // without a folder for state there is no record
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
