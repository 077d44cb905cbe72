package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

func dropCache(f *os.File, off, n int64) { _ = unix.Fadvise(int(f.Fd()), off, n, unix.FADV_DONTNEED) }
