package blocks

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"
)

// A put that finds blocks that a killed process wrote and did not flush is durable when it is acknowledged. What a
// start reads of such a write is in the page cache alone.
func TestWhatAKilledProcessDidNotFlushIsFlushedBeforeItIsAcknowledged(t *testing.T) {
	testPowerLoss(t, func(*os.File, string, []byte, int64) {})
}

// A put that finds blocks whose flush failed in an earlier process is durable when it is acknowledged. The system
// takes the pages for clean after a failed flush: the next start reads them, and a flush of them proves nothing.
func TestWhatAFailedFlushLeftIsWrittenAgainBeforeItIsAcknowledged(t *testing.T) {
	testPowerLoss(t, func(f *os.File, image string, whole []byte, from int64) {
		must(t, f.Sync())
		syscall.Sync()
		forgetOnDisk(t, image, whole, from)
	})
}

// testPowerLoss writes a put into a segment as one that was not flushed, and has after do more
// with the file, the image of its disk, and the bytes that are new from an offset on. Who puts
// and seals the same again, and is told that it is durable, has it after the power went too.
func testPowerLoss(t *testing.T, after func(f *os.File, image string, whole []byte, from int64)) {
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
	after(f, image, whole, info.Size())
	must(t, f.Close())

	// The next start, at which the client comes again.
	s, err = Open(dir, testOptions())
	must(t, err)
	if _, ok, err := s.Reference(t.Context(), "late"); !ok || err != nil {
		t.Fatalf("the pages are not in memory any more, so this shows nothing: %v", err)
	}
	must(t, s.PutAndSeal(t.Context(), "late", late, sealed))
	must(t, s.Put(t.Context(), "late", late))
	must(t, s.Seal(t.Context(), "late", sealed))
	wantHere(t, s, late...)

	// The power goes.
	powerOff(t, at)
	// The store cannot be closed any more; what is on the disk is looked at in a copy.
	copied := filepath.Join(top, "after")
	must(t, os.Mkdir(copied, 0o700))
	run("cp", image, image+"2")
	run("mount", "-o", "loop", image+"2", copied)
	t.Cleanup(func() { _ = syscall.Unmount(copied, syscall.MNT_DETACH) })
	s, err = Open(filepath.Join(copied, "blocks"), testOptions())
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	wantHere(t, s, before...)
	if info, ok, err := s.Reference(t.Context(), "late"); !ok || !info.Sealed || err != nil {
		t.Errorf("what was acknowledged: there %t, %+v, %v", ok, info, err)
	}
	wantHere(t, s, late...)
}

// forgetOnDisk overwrites with zeros what an image has of the bytes of a file from an offset
// on. Who has mounted it has them in memory still, and does not know.
func forgetOnDisk(t *testing.T, image string, whole []byte, begin int64) {
	t.Helper()
	disk, err := os.ReadFile(image)
	must(t, err)
	const chunk = 256 // of what is looked for, within one page of the file
	lost := 0
	for off := begin; off < int64(len(whole)); off += chunk {
		part := whole[off:min(off+chunk, int64(len(whole)), (off/4096+1)*4096)]
		if len(part) < 32 {
			continue
		}
		for from := 0; ; {
			i := bytes.Index(disk[from:], part)
			if i < 0 {
				break
			}
			clear(disk[from+i : from+i+len(part)])
			lost++
			from += i + len(part)
		}
	}
	if lost == 0 {
		t.Fatal("nothing of it is in the image")
	}
	img, err := os.OpenFile(image, os.O_WRONLY, 0)
	must(t, err)
	for off := 0; off < len(disk); off += 4096 { // in place, and only what is not as it was
		was := make([]byte, 4096)
		r, err := os.Open(image)
		must(t, err)
		_, err = r.ReadAt(was, int64(off))
		must(t, err)
		must(t, r.Close())
		if !bytes.Equal(was, disk[off:off+4096]) {
			_, err = img.WriteAt(disk[off:off+4096], int64(off))
			must(t, err)
		}
	}
	must(t, img.Close())
}

// powerOff ends a file system without writing what it has in memory.
func powerOff(t *testing.T, at string) {
	t.Helper()
	d, err := os.Open(at)
	must(t, err)
	noFlush := uint32(2)        // EXT4_GOING_FLAGS_NOLOGFLUSH of linux/include/uapi/linux/ext4.h
	const shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, d.Fd(), shutdown, uintptr(unsafe.Pointer(&noFlush)))
	must(t, d.Close())
	if errno != 0 {
		t.Fatal(errno)
	}
}
