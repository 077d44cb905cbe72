//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// commandWithin bounds one command of the system.
const commandWithin = 2 * time.Minute

// mib is a mebibyte.
const mib = 1 << 20

// disk is an ext4 file system in a file.
type disk struct {
	tb    testing.TB
	image string
	at    string // where it is mounted

	frozen bool
}

// newDisk makes and mounts a disk of so many MiB. Its folder is /tmp/hff-... so
// that names of sockets in it are short.
func newDisk(tb testing.TB, size int) *disk {
	tb.Helper()
	dir, err := os.MkdirTemp("", fmt.Sprintf("hff-%d-", os.Getpid()))
	if err != nil {
		tb.Fatal(err)
	}
	d := &disk{tb: tb, image: filepath.Join(dir, "image"), at: filepath.Join(dir, "d")}
	tb.Cleanup(func() {
		if err := d.remove(); err != nil {
			tb.Errorf("remove %s: %v", dir, err)
		}
	})
	if err := errors.Join(os.Mkdir(d.at, 0o700), os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, int64(size)*mib)); err != nil {
		tb.Fatal(err)
	}
	d.must("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4", d.image)
	d.mount()
	return d
}

func (d *disk) mount() {
	d.tb.Helper()
	d.must("mount", "-o", "loop", d.image, d.at)
}

// on mounts the disk at another place as well.
func (d *disk) on(path string) {
	d.tb.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		d.tb.Fatal(err)
	}
	d.must("mount", "--bind", d.at, path)
	d.tb.Cleanup(func() {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			d.tb.Errorf("unmount %s: %v", path, err)
		}
	})
}

func (d *disk) remove() error {
	var errs []error
	if d.frozen {
		errs = append(errs, d.thaw())
	}
	if err := syscall.Unmount(d.at, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
		errs = append(errs, err) // EINVAL: it was not mounted
	}
	return errors.Join(append(errs, os.RemoveAll(filepath.Dir(d.image)))...)
}

func (d *disk) must(name string, args ...string) {
	d.tb.Helper()
	if err := run(name, args...); err != nil {
		d.tb.Fatal(err)
	}
}

func run(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), commandWithin)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// freeze makes every write to the disk wait.
func (d *disk) freeze() {
	d.tb.Helper()
	d.must("fsfreeze", "-f", d.at)
	d.frozen = true
}

func (d *disk) thaw() error {
	d.frozen = false
	return run("fsfreeze", "-u", d.at)
}

// goDown is ext4's request to stop at once, as without power: nothing is written
// to the device any more, not the journal either. From the kernel's ext4.h:
// EXT4_IOC_SHUTDOWN is _IOR('X', 125, __u32), EXT4_GOING_FLAGS_NOLOGFLUSH is 2.
const (
	goDown      = 0x8004587d
	withoutLogs = 2
)

// cutPower makes the disk what was flushed to it, unmounted.
func (d *disk) cutPower() {
	d.tb.Helper()
	f, err := os.Open(d.at)
	if err != nil {
		d.tb.Fatal(err)
	}
	flags := uint32(withoutLogs)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), goDown, uintptr(unsafe.Pointer(&flags)))
	if err := f.Close(); err != nil || errno != 0 {
		d.tb.Fatalf("cut the power of %s: %v, %v", d.at, errno, err)
	}
	d.must("umount", d.at)
}

func (d *disk) filler() string { return filepath.Join(d.at, "filler") }

// fill takes the disk until so many bytes are left. What others free meanwhile
// stays free.
func (d *disk) fill(left int64) error {
	f, err := os.OpenFile(d.filler(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for step := int64(4 * mib); step >= 4096; {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(d.at, &fs); err != nil {
			return err
		}
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if int64(fs.Bavail)*int64(fs.Bsize)-left < step {
			step /= 2
			continue
		}
		err = syscall.Fallocate(int(f.Fd()), 0, info.Size(), step)
		if errors.Is(err, syscall.ENOSPC) {
			step /= 2
		} else if err != nil {
			return fmt.Errorf("fill %s: %w", d.at, err)
		}
	}
	return nil
}

// keepFull fills the disk to its last byte again and again until the returned
// function is called, which makes room.
func (d *disk) keepFull() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		every := time.NewTicker(20 * time.Millisecond)
		defer every.Stop()
		for {
			if err := d.fill(0); err != nil {
				done <- err
				return
			}
			select {
			case <-every.C:
			case <-ctx.Done():
				done <- os.Remove(d.filler())
				return
			}
		}
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			d.tb.Errorf("fill %s: %v", d.at, err)
		}
	}
}

// failFlushes makes the next fsync or fdatasync of each thread of a process fail
// with EIO, once. The returned function tells when the first one did, after the
// process has ended.
func failFlushes(tb testing.TB, pid int) (failedAt func() time.Time) {
	tb.Helper()
	trace := filepath.Join(tb.TempDir(), "trace")
	ctx, cancel := context.WithTimeout(context.Background(), 2*healWithin)
	tb.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "strace", "-f", "-qq", "-ttt", "-o", trace, "-e", "trace=fsync,fdatasync",
		"-e", "inject=fsync,fdatasync:error=EIO:when=1", "-p", fmt.Sprint(pid))
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return func() time.Time {
		tb.Helper()
		<-ended // with its tracee; bounded by ctx
		text, err := os.ReadFile(trace)
		if err != nil {
			tb.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var thread int
			var at float64
			if strings.Contains(line, "INJECTED") {
				if _, err := fmt.Sscan(line, &thread, &at); err == nil {
					return time.UnixMicro(int64(at * 1e6))
				}
			}
		}
		tb.Fatalf("no flush was made to fail:\n%s", text)
		return time.Time{}
	}
}
