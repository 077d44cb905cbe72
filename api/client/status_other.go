//go:build !linux

package client

import (
	"io/fs"
	"time"
)

// statusTime returns when the content of a file changed last.
func statusTime(info fs.FileInfo) time.Time { return info.ModTime() }
