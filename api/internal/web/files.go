package web

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
)

// CARType is the media type of a CAR, as IANA has registered it.
const CARType = "application/vnd.ipld.car"

// TarType is the media type of a folder as a tar stream.
const TarType = "application/x-tar"

// maxPartHead is the maximum number of bytes of a form field, and of the header of a file in a form.
const maxPartHead = 64 << 10

// errNoForm is the error of NewFilesForm.
var errNoForm = errors.New("the body is not multipart/form-data")

// FilesForm reads a body of the type multipart/form-data (RFC 7578) with fields and files, one after the
// other. It bounds the sizes of fields and of the headers of files, but not those of files.
type FilesForm struct {
	parts  *multipart.Reader
	in     *Metered
	broken error
}

// NewFilesForm returns a FilesForm that reads from body, or an error if the header names another type.
// broken is the error for a body that is not such a form or ends early.
func NewFilesForm(header http.Header, body io.Reader, broken error) (*FilesForm, error) {
	kind, parameters, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || parameters["boundary"] == "" {
		return nil, errNoForm
	}
	in := &Metered{R: body, Over: broken}
	return &FilesForm{multipart.NewReader(in, parameters["boundary"]), in, broken}, nil
}

// Field returns the value of the next field, which must have this name.
func (f *FilesForm) Field(name string) (string, error) {
	f.in.Left = maxPartHead
	part, err := f.parts.NextRawPart()
	if err != nil || part.FormName() != name {
		return "", f.broken
	}
	value, err := io.ReadAll(part)
	if err != nil {
		return "", f.broken
	}
	return string(value), nil
}

// File returns the next file and its name, which may contain folders. After the last file it
// returns io.EOF. It skips fields in which no file was chosen.
func (f *FilesForm) File() (name string, part *multipart.Part, err error) {
	for {
		f.in.Left = maxPartHead
		part, err := f.parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return "", nil, io.EOF
		}
		if err != nil {
			return "the next file", nil, f.broken
		}
		// Part.FileName leaves out the folders.
		_, parameters, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if err != nil {
			return "the next file", nil, f.broken
		}
		if name := strings.TrimPrefix(fileName.Replace(parameters["filename"]), "/"); name != "" {
			f.in.Left = unmetered
			return name, part, nil
		}
		if _, err := io.Copy(io.Discard, part); err != nil {
			return "the next file", nil, f.broken
		}
	}
}

// Skip discards the rest of a file, up to most bytes.
func (f *FilesForm) Skip(part *multipart.Part, most int64) error {
	f.in.Left = most
	if _, err := io.Copy(io.Discard, part); err != nil {
		return fmt.Errorf("skip file: %w", err)
	}
	return nil
}

// fileName decodes the characters that browsers percent-encode in the name of a file in a form
// (HTML Living Standard, "multipart form data").
var fileName = strings.NewReplacer("%22", `"`, "%0D", "\r", "%0A", "\n")

// unmetered is the limit of Metered while the content of a file is read, which is limited
// elsewhere.
const unmetered = 1 << 62

// Metered is a reader that returns the error Over after Left bytes.
type Metered struct {
	R    io.Reader
	Left int64
	Over error
}

// Read implements io.Reader.
func (m *Metered) Read(p []byte) (int, error) {
	if m.Left <= 0 {
		return 0, m.Over
	}
	n, err := m.R.Read(p[:min(int64(len(p)), m.Left)])
	m.Left -= int64(n)
	return n, err
}
