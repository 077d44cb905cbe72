package blocks

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"
)

// What a start reads of a write that a killed process did not flush is in the page cache
// alone. Who puts and seals the same again, and is told that it is durable, has it after
// the power went too.
func TestWhatAKilledProcessDidNotFlushIsFlushedBeforeItIsAcknowledged(t *testing.T) {
	top := t.TempDir()
	image, at := filepath.Join(top, "image"), filepath.Join(top, "d")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Skipf("%s: %v: %s", name, err, out)
		}
	}
	must(t, os.Mkdir(at, 0o700))
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 128<<20))
	run("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4", image)
	run("mount", "-o", "loop", image, at)
	t.Cleanup(func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) })
	dir := filepath.Join(at, "blocks")

	before, late := makeBlocks(t, 1, 1, 100), makeBlocks(t, 2, 3, 5_000)
	sealed := Sealed{Bytes: 15_000, Blocks: 3}
	s, err := Open(dir, testOptions())
	must(t, err)
	mustPut(t, s, "before", before...)
	must(t, s.Close())
	// The same store elsewhere makes the bytes of the put; here they get into the file and
	// the process dies before it has asked for the flush.
	other := filepath.Join(top, "other")
	must(t, copyStill(dir, other))
	o, err := Open(other, testOptions())
	must(t, err)
	must(t, o.PutAndSeal(t.Context(), "late", late, sealed))
	must(t, o.Close())
	whole, err := os.ReadFile(segmentPaths(t, other)[0])
	must(t, err)
	f, err := os.OpenFile(segmentPaths(t, dir)[0], os.O_WRONLY, 0)
	must(t, err)
	info, err := f.Stat()
	must(t, err)
	_, err = f.WriteAt(whole[info.Size():], info.Size())
	must(t, err)
	must(t, f.Close())

	// The next start, at which the client comes again.
	s, err = Open(dir, testOptions())
	must(t, err)
	must(t, s.PutAndSeal(t.Context(), "late", late, sealed))
	must(t, s.Put(t.Context(), "late", late))
	must(t, s.Seal(t.Context(), "late", sealed))
	wantHere(t, s, late...)

	// The power goes.
	d, err := os.Open(at)
	must(t, err)
	noFlush := uint32(2)        // EXT4_GOING_FLAGS_NOLOGFLUSH of linux/include/uapi/linux/ext4.h
	const shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, d.Fd(), shutdown, uintptr(unsafe.Pointer(&noFlush)))
	must(t, d.Close())
	if errno != 0 {
		t.Fatal(errno)
	}
	// The store cannot be closed any more; what is on the disk is looked at in a copy.
	after := filepath.Join(top, "after")
	must(t, os.Mkdir(after, 0o700))
	run("cp", image, image+"2")
	run("mount", "-o", "loop", image+"2", after)
	t.Cleanup(func() { _ = syscall.Unmount(after, syscall.MNT_DETACH) })
	s, err = Open(filepath.Join(after, "blocks"), testOptions())
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	wantHere(t, s, before...)
	if info, ok, err := s.Owner(t.Context(), "late"); !ok || !info.Sealed || err != nil {
		t.Errorf("what was acknowledged: there %t, %+v, %v", ok, info, err)
	}
	wantHere(t, s, late...)
}
