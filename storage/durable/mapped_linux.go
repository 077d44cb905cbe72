package durable

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dropMapped finds the shared mappings of the file in /proc/self/maps, see proc_pid_maps(5). The
// device number there is not that of stat on some file systems, so only inode and name are compared.
func dropMapped(file fs.FileInfo) (err error) {
	stat, ok := file.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer func() { _ = maps.Close() }()
	inode := strconv.FormatUint(stat.Ino, 10)
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		// address, permissions, offset, device, inode, name
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[4] != inode || !strings.HasSuffix(fields[1], "s") || !strings.HasSuffix(lines.Text(), "/"+file.Name()) {
			continue
		}
		var from, to uintptr
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err != nil {
			return fmt.Errorf("address %q: %w", fields[0], err)
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return lines.Err()
}
