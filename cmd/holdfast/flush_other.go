//go:build !linux

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// flushFolder makes the content of a folder durable.
func flushFolder(path string) error {
	return filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}
