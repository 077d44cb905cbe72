//go:build !linux

package client

import (
	"io/fs"
	"time"
)

// statusTime returns the time of the last change of the content of a file.
func statusTime(info fs.FileInfo) time.Time { return info.ModTime() }
