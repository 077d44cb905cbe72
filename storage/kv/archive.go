package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// The archive format, version 1. The format is our own for three reasons: the exact size of an
// archive is known before it is written, reading has fixed limits, and each file has its own
// checksum. All numbers are big endian; CRC is CRC32C.
//
//	header  "HFKVAR" 0x00 0x01
//	file    0x01, name length uint16, name, size uint64, CRC of all these,
//	        then the content, then CRC of the content
//	end     0x02, number of files uint64, sum of sizes uint64, CRC of all these
const (
	archiveMagic = "HFKVAR\x00\x01"

	frameFile = 0x01
	frameEnd  = 0x02

	crcBytes      = 4
	fileHeadBytes = 1 + 2 + 8 + crcBytes
	endBytes      = 1 + 8 + 8 + crcBytes

	maxArchiveName  = 128
	maxArchiveFiles = 1 << 20
	maxArchiveBytes = 1 << 44 // 16 TiB

	copyBufferBytes = 256 << 10
)

// ErrBadArchive is wrapped by every error about a stream that WriteArchive did not
// produce, or that ends early.
var ErrBadArchive = errors.New("kv: bad archive")

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

type archiveFile struct {
	name string
	size int64
}

func archiveFiles(dir string) ([]archiveFile, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	files := make([]archiveFile, 0, len(entries))
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a plain file", e.Name())
		}
		if !safeName(e.Name()) {
			return nil, fmt.Errorf("file name %q", e.Name())
		}
		files = append(files, archiveFile{e.Name(), info.Size()})
	}
	return files, nil
}

// safeName returns whether name has the form of the file names that Pebble uses. Other names are
// refused, because they could lead out of the folder or be hidden files in it.
func safeName(name string) bool {
	if name == "" || len(name) > maxArchiveName || name[0] == '.' {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// ArchiveSize returns the exact number of bytes that WriteArchive will write
// for checkpointDir.
func ArchiveSize(checkpointDir string) (int64, error) {
	files, err := archiveFiles(checkpointDir)
	if err != nil {
		return 0, fmt.Errorf("kv: archive size: %w", err)
	}
	size := int64(len(archiveMagic) + endBytes)
	for _, f := range files {
		size += fileHeadBytes + int64(len(f.name)) + f.size + crcBytes
	}
	return size, nil
}

// WriteArchive writes the checkpoint in checkpointDir to w as one stream. Store.Restore reads
// such a stream.
func WriteArchive(w io.Writer, checkpointDir string) error {
	files, err := archiveFiles(checkpointDir)
	if err != nil {
		return fmt.Errorf("kv: write archive: %w", err)
	}
	if _, err := io.WriteString(w, archiveMagic); err != nil {
		return fmt.Errorf("kv: write archive: %w", err)
	}
	buf := make([]byte, copyBufferBytes)
	var total int64
	for _, f := range files {
		if err := writeArchiveFile(w, checkpointDir, f, buf); err != nil {
			return fmt.Errorf("kv: write archive: %s: %w", f.name, err)
		}
		total += f.size
	}
	end := binary.BigEndian.AppendUint64([]byte{frameEnd}, uint64(len(files)))
	end = binary.BigEndian.AppendUint64(end, uint64(total))
	if _, err := w.Write(appendCRC(end)); err != nil {
		return fmt.Errorf("kv: write archive: %w", err)
	}
	return nil
}

func appendCRC(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
}

func writeArchiveFile(w io.Writer, dir string, f archiveFile, buf []byte) (err error) {
	src, err := os.Open(filepath.Join(dir, f.name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	head := binary.BigEndian.AppendUint16([]byte{frameFile}, uint16(len(f.name)))
	head = append(head, f.name...)
	head = binary.BigEndian.AppendUint64(head, uint64(f.size))
	if _, err := w.Write(appendCRC(head)); err != nil {
		return err
	}
	sum := crc32.New(castagnoli())
	// Hiding ReadFrom and WriteTo keeps io.CopyBuffer to the one buffer.
	n, err := io.CopyBuffer(writerOnly{io.MultiWriter(w, sum)}, readerOnly{io.LimitReader(src, f.size)}, buf)
	if err != nil {
		return err
	}
	if n != f.size {
		return fmt.Errorf("has %d of its %d bytes: %w", n, f.size, io.ErrUnexpectedEOF)
	}
	_, err = w.Write(binary.BigEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

type (
	writerOnly struct{ io.Writer }
	readerOnly struct{ io.Reader }
)

// extractArchive writes the files of the archive r into the new folder dir and makes them
// durable. It reads r to its end and not further.
func extractArchive(r io.Reader, dir string) error {
	if err := durable.MkdirAll(dir, dirPerm); err != nil {
		return err
	}
	if err := readArchive(&extraction{r: r, dir: dir}); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}

// readArchive reads an archive and checks its checksums.
func readArchive(x *extraction) error {
	x.buf = make([]byte, copyBufferBytes)
	magic := make([]byte, len(archiveMagic))
	if _, err := io.ReadFull(x.r, magic); err != nil {
		return truncated(err)
	}
	if string(magic) != archiveMagic {
		return fmt.Errorf("%w: unknown header", ErrBadArchive)
	}
	for {
		if done, err := x.frame(); done || err != nil {
			return err
		}
	}
}

type extraction struct {
	r     io.Reader
	dir   string // folder for the files; empty means that no files are written
	buf   []byte
	files uint64
	total uint64
}

// truncated returns an error that wraps ErrBadArchive if err is the end of the stream in the middle
// of a frame. It returns every other error unchanged.
func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: ends too early", ErrBadArchive)
	}
	return err
}

func (x *extraction) frame() (done bool, err error) {
	var kind [1]byte
	if _, err := io.ReadFull(x.r, kind[:]); err != nil {
		return false, truncated(err)
	}
	switch kind[0] {
	case frameFile:
		return false, x.file()
	case frameEnd:
		return true, x.end()
	}
	return false, fmt.Errorf("%w: unknown frame %#x", ErrBadArchive, kind[0])
}

func checkCRC(frame []byte) error {
	body, sum := frame[:len(frame)-crcBytes], frame[len(frame)-crcBytes:]
	if crc32.Checksum(body, castagnoli()) != binary.BigEndian.Uint32(sum) {
		return fmt.Errorf("%w: frame checksum", ErrBadArchive)
	}
	return nil
}

func (x *extraction) end() error {
	frame := make([]byte, endBytes)
	frame[0] = frameEnd
	if _, err := io.ReadFull(x.r, frame[1:]); err != nil {
		return truncated(err)
	}
	if err := checkCRC(frame); err != nil {
		return err
	}
	files, total := binary.BigEndian.Uint64(frame[1:]), binary.BigEndian.Uint64(frame[9:])
	if files != x.files || total != x.total {
		return fmt.Errorf("%w: %d files of %d bytes announced, %d of %d seen", ErrBadArchive, files, total, x.files, x.total)
	}
	return nil
}

func (x *extraction) file() error {
	frame := make([]byte, 3, fileHeadBytes+maxArchiveName)
	frame[0] = frameFile
	if _, err := io.ReadFull(x.r, frame[1:]); err != nil {
		return truncated(err)
	}
	nameLen := int(binary.BigEndian.Uint16(frame[1:]))
	if nameLen > maxArchiveName {
		return fmt.Errorf("%w: file name of %d bytes", ErrBadArchive, nameLen)
	}
	frame = frame[:fileHeadBytes+nameLen]
	if _, err := io.ReadFull(x.r, frame[3:]); err != nil {
		return truncated(err)
	}
	if err := checkCRC(frame); err != nil {
		return err
	}
	name := string(frame[3 : 3+nameLen])
	size := binary.BigEndian.Uint64(frame[3+nameLen:])
	if !safeName(name) {
		return fmt.Errorf("%w: file name %q", ErrBadArchive, name)
	}
	x.files++
	if x.files > maxArchiveFiles || size > maxArchiveBytes-x.total {
		return fmt.Errorf("%w: more than %d files or %d bytes", ErrBadArchive, maxArchiveFiles, int64(maxArchiveBytes))
	}
	x.total += size
	return x.content(name, int64(size))
}

func (x *extraction) content(name string, size int64) (err error) {
	if x.dir == "" {
		return x.copyTo(io.Discard, name, size)
	}
	// O_EXCL refuses a name that is repeated.
	f, err := os.OpenFile(filepath.Join(x.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, filePerm)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: file %q comes twice", ErrBadArchive, name)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := x.copyTo(f, name, size); err != nil {
		return err
	}
	return f.Sync()
}

// copyTo copies the content of one file and verifies its checksum.
func (x *extraction) copyTo(w io.Writer, name string, size int64) error {
	sum := crc32.New(castagnoli())
	n, err := io.CopyBuffer(writerOnly{io.MultiWriter(w, sum)}, readerOnly{io.LimitReader(x.r, size)}, x.buf)
	if err != nil {
		return err
	}
	var want [crcBytes]byte
	if n != size {
		return truncated(io.ErrUnexpectedEOF)
	}
	if _, err := io.ReadFull(x.r, want[:]); err != nil {
		return truncated(err)
	}
	if sum.Sum32() != binary.BigEndian.Uint32(want[:]) {
		return fmt.Errorf("%w: content checksum of %q", ErrBadArchive, name)
	}
	return nil
}
