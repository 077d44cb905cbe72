package client

import (
	"io/fs"
	"syscall"
	"time"
)

// statusTime returns when a file, or its name, mode or times, changed last. Unlike the time of
// the content it cannot be set.
func statusTime(info fs.FileInfo) time.Time {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(s.Ctim.Unix())
	}
	return info.ModTime()
}
