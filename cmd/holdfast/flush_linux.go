package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// flushFolder makes the content of a folder durable. It flushes the whole file system, because that is
// faster than to flush thousands of files one by one.
func flushFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))), f.Close())
}
