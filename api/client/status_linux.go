package client

import (
	"io/fs"
	"syscall"
	"time"
)

// statusTime returns the time of the last change of the content, name, mode or times of a file.
// Programs cannot set this time, unlike the time of the content.
func statusTime(info fs.FileInfo) time.Time {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(s.Ctim.Unix())
	}
	return info.ModTime()
}
