package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the numeric id of the user and the group holdfast. It is a number and no name in the
// image, so that Kubernetes can check that it is not root.
const user = 65532

// Folders of the image.
const (
	dataFolder   = "/var/lib/holdfast"
	ticketFolder = "/run/holdfast" // for volumes through which one node passes tickets to others
	programFile  = "/usr/bin/holdfast"
)

// entry is a file, or a folder, in a layer.
type entry struct {
	path  string // without the slash in front; a folder ends in one
	mode  int64
	owner int
	data  []byte
}

// baseEntries are the files of the image beside the program. Nothing in them depends on the machine
// of the build: the root certificates are those of Mozilla, from a Go module.
func baseEntries(license []byte) []entry {
	return []entry{
		{path: "etc/", mode: 0o755},
		{path: "etc/group", mode: 0o644, data: fmt.Appendf(nil, "root:x:0:\nholdfast:x:%d:\n", user)},
		{path: "etc/passwd", mode: 0o644, data: fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nholdfast:x:%d:%d:Holdfast node:%s:/sbin/nologin\n", user, user, dataFolder)},
		{path: "etc/ssl/", mode: 0o755},
		{path: "etc/ssl/certs/", mode: 0o755},
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: rootCertificates()},
		{path: "run/", mode: 0o755},
		{path: ticketFolder[1:] + "/", mode: 0o700, owner: user},
		{path: "tmp/", mode: 0o1777},
		{path: "usr/", mode: 0o755},
		{path: "usr/bin/", mode: 0o755},
		{path: "usr/share/", mode: 0o755},
		{path: "usr/share/doc/", mode: 0o755},
		{path: "usr/share/doc/holdfast/", mode: 0o755},
		{path: "usr/share/doc/holdfast/copyright", mode: 0o644, data: license},
		{path: "var/", mode: 0o755},
		{path: "var/lib/", mode: 0o755},
		{path: dataFolder[1:] + "/", mode: 0o700, owner: user},
	}
}

// rootCertificates returns the root certificates that Mozilla trusts for TLS, in PEM form. It omits
// roots that Mozilla trusts only in part, because a file of certificates cannot express that.
func rootCertificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer returns no error
		}
	}
	return b.Bytes()
}

// blob is a part of an image, which others name by its digest.
type blob struct {
	digest string // sha256: and hexadecimal digits
	data   []byte
}

func newBlob(data []byte) blob { return blob{digest: digestOf(data), data: data} }

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// layer is a compressed layer. diffID is the digest of the tar archive in it.
type layer struct {
	blob
	diffID string
}

// newLayer makes a layer of entries, all with the same time.
func newLayer(entries []entry, created time.Time) (layer, error) {
	var packed, archive bytes.Buffer
	if err := writeTar(&archive, entries, created); err != nil {
		return layer{}, err
	}
	gz, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return layer{}, err
	}
	if _, err := gz.Write(archive.Bytes()); err != nil {
		return layer{}, err
	}
	if err := gz.Close(); err != nil {
		return layer{}, err
	}
	return layer{blob: newBlob(packed.Bytes()), diffID: digestOf(archive.Bytes())}, nil
}

// program is the binary for one architecture.
type program struct {
	arch string // of GOARCH, which OCI uses too
	path string
}

// maxProgram bounds the size of a binary, in bytes.
const maxProgram = 1 << 30

// layer returns the layer with the binary.
func (p program) layer(created time.Time) (layer, error) {
	f, err := os.Open(p.path)
	if err != nil {
		return layer{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxProgram+1))
	if err != nil {
		return layer{}, err
	}
	if len(data) == 0 || len(data) > maxProgram {
		return layer{}, fmt.Errorf("%s has %d bytes: not a program of at most %d", p.path, len(data), maxProgram)
	}
	return newLayer([]entry{{path: programFile[1:], mode: 0o755, data: data}}, created)
}
