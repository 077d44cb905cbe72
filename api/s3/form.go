package s3

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/api/s3/sigv4"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits of an upload form. The fields before the file are read into memory before the client is
// authenticated, because they contain its credentials.
const (
	maxFormFields = 100
	maxFieldName  = 1 << 10  // in bytes
	maxFieldBytes = 20 << 10 // names and values of all fields, as in Amazon S3
	maxFormHead   = 64 << 10 // all bytes before the content of the file, with the boundaries
	maxFormTail   = 64 << 10 // all bytes after it
	formBuffer    = 32 << 10 // read buffer
	formMemory    = 64 << 10 // memory for a form before its file, with the buffer
)

// formType is the media type of upload forms.
const formType = "multipart/form-data"

// form is an upload form (POST Object) that was read up to the content of its file.
type form struct {
	fields   map[string]string // fields before the file by lower-case name
	names    []string          // lower-case names of fields, in order
	filename string            // name of the file, without folders

	in   *web.Metered
	read *multipart.Reader
	file *multipart.Part
	wire *web.Patient // reader of the connection
}

// errEnd is the error of a form that ends too early. It is used instead of io.EOF, because
// package multipart would take a form that ends in the header of a part for a complete one.
var errEnd = errors.New("the form has no end")

type theEnd struct{}

func (theEnd) Read([]byte) (int, error) { return 0, errEnd }

// isForm reports whether a request is an upload form, whose fields may contain the credentials.
func (s *surface) isForm(r *request) bool {
	if r.Method != http.MethodPost || r.level != levelBucket {
		return false
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) || kind != formType {
		return false
	}
	op, err := s.find(r)
	return err == nil && op.sub == ""
}

// readForm reads an upload form up to the content of its file.
func (s *surface) readForm(w http.ResponseWriter, r *request) (*form, error) {
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	boundary := parameters["boundary"]
	switch {
	case kind != formType:
		return nil, errorf(RequestIsNotMultiPartContent, "bucket POST must be of the enclosure-type %s", formType)
	case err != nil || boundary == "" || len(boundary) > 70: // RFC 2046, section 5.1.1
		return nil, malformedForm()
	case r.ContentLength > s.maxObject+maxFormHead+maxFormTail:
		return nil, errorf(EntityTooLarge, "your proposed upload exceeds the maximum allowed size of %d bytes", s.maxObject)
	}
	if r.caller.framing, err = sigv4.FramingOf(r.Request); err != nil {
		return nil, err
	}
	if r.caller.framing.Chunked {
		return nil, errorf(InvalidRequest, "a form cannot be in the encoding aws-chunked")
	}
	wire := s.patient(w, r, time.Now().Add(smallTimeout))
	f := &form{fields: map[string]string{}, wire: wire}
	body := bufio.NewReaderSize(r.caller.framing.Body(wire), formBuffer)
	f.in = &web.Metered{R: io.MultiReader(body, strings.NewReader("\r\n"), theEnd{}), Left: maxFormHead, Over: tooManyFields()}
	f.read = multipart.NewReader(f.in, boundary)
	if err := f.head(); err != nil {
		return nil, formError(err)
	}
	wire.WaitUntil(time.Time{}) // the file may take any time
	return f, nil
}

// head reads the fields before the file into f.
func (f *form) head() error {
	size := 0
	for {
		part, err := f.read.NextRawPart()
		if err == io.EOF { //nolint:errorlint // the end after the last part
			return errorf(IncorrectNumberOfFilesInPostRequest, "POST requires exactly one file upload per request")
		}
		if err != nil {
			return fmt.Errorf("read form: %w", err)
		}
		name, filename, err := disposition(part.Header)
		if err != nil {
			return err
		}
		if name == "file" {
			f.file, f.filename = part, filename
			return f.named(size)
		}
		value, err := io.ReadAll(io.LimitReader(part, int64(maxFieldBytes-size+1)))
		if err != nil {
			return fmt.Errorf("read form: %w", err)
		}
		if size += len(name) + len(value); size > maxFieldBytes || len(name) > maxFieldName || len(f.names) == maxFormFields {
			return tooManyFields()
		}
		if _, twice := f.fields[name]; twice && !ignored(name) {
			return errorf(InvalidArgument, "the form has the field %.64q twice", name)
		}
		f.fields[name] = string(value)
		f.names = append(f.names, name)
	}
}

// variable is the placeholder that stands for the name of the file in any field ("Creating an
// HTML Form" in the Amazon S3 API Reference).
const variable = "${filename}"

// redirect is the name of the field with the URL to which the client is redirected after the
// upload.
const redirect = "success_action_redirect"

// named replaces the placeholder in all fields by the name of the file. size is the length of all
// fields so far. If the replacement exceeds maxFieldBytes, named returns an error.
func (f *form) named(size int) error {
	filenames := map[string]string{redirect: escapeKey(f.filename)} // it is part of a URL
	for name, value := range f.fields {
		if n := strings.Count(value, variable); n > 0 {
			size += n * (len(pick(filenames[name], f.filename)) - len(variable))
		}
	}
	if size > maxFieldBytes {
		return tooManyFields()
	}
	for name, value := range f.fields {
		f.fields[name] = strings.ReplaceAll(value, variable, pick(filenames[name], f.filename))
	}
	return nil
}

// disposition parses the Content-Disposition of a part of a form. It returns the field name in
// lower case, because case does not matter, and the file name without folders, which some
// browsers send.
func disposition(h textproto.MIMEHeader) (name, filename string, err error) {
	kind, parameters, err := mime.ParseMediaType(h.Get("Content-Disposition"))
	if err != nil || kind != "form-data" || parameters["name"] == "" {
		return "", "", malformedForm()
	}
	filename = parameters["filename"]
	return strings.ToLower(parameters["name"]), filename[strings.LastIndexAny(filename, `/\`)+1:], nil
}

// ignored reports whether Amazon S3 ignores a field of this name.
func ignored(name string) bool { return strings.HasPrefix(name, "x-ignore-") }

func malformedForm() *Error {
	return errorf(MalformedPOSTRequest, "the body of your POST request is not well-formed %s", formType)
}

func tooManyFields() *Error {
	return errorf(MaxPostPreDataLengthExceeded, "your POST request fields preceding the upload file were too large: at most %d fields, names of %d bytes, and %d bytes of all",
		maxFormFields, maxFieldName, maxFieldBytes)
}

// formError converts an error of reading a form to one for the client.
func formError(err error) error {
	var own *Error
	var signed *sigv4.Error
	var coded *state.Error
	if errors.As(err, &own) || errors.As(err, &signed) || errors.As(err, &coded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return malformedForm()
}

// finish reads the rest of the form after the file and verifies that the form is complete. It
// ignores further fields, because a page has its submit button at the end.
func (f *form) finish() error {
	f.in.Left, f.in.Over = maxFormTail, errorf(MalformedPOSTRequest, "more than %d bytes follow the file", maxFormTail)
	for {
		part, err := f.read.NextRawPart()
		if err == io.EOF { //nolint:errorlint // as in head
			break
		}
		if err != nil {
			return fmt.Errorf("read form: %w", err)
		}
		name, _, err := disposition(part.Header)
		if err != nil {
			return err
		}
		if name == "file" {
			return errorf(IncorrectNumberOfFilesInPostRequest, "POST requires exactly one file upload per request")
		}
	}
	// The hash of the body includes the bytes after the form.
	if _, err := io.Copy(io.Discard, f.in); !errors.Is(err, errEnd) {
		return fmt.Errorf("read form: %w", err)
	}
	return nil
}

// formFile is a reader of the file in a form. It returns io.EOF only if the form is complete and
// the policy allows the size of the file.
type formFile struct {
	form        *form
	size        int64 // bytes read
	least, most int64 // allowed size of the file, in bytes
	err         error // result of every later Read
}

func (f *formFile) Read(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	f.form.in.Left = web.WriteBuffer + formBuffer // limit of a single read
	n, err := f.form.file.Read(p[:min(len(p), web.WriteBuffer)])
	f.size += int64(n)
	switch {
	case f.size > f.most:
		f.err = errorf(EntityTooLarge, "your proposed upload exceeds the maximum allowed size of %d bytes", f.most)
	case err == io.EOF: //nolint:errorlint // the end of the part
		f.err = f.end()
	case err != nil:
		f.err = formError(fmt.Errorf("read file: %w", err))
	}
	if f.err != nil && f.err != io.EOF { //nolint:errorlint // set above
		return 0, f.err
	}
	return n, f.err
}

func (f *formFile) end() error {
	if err := f.form.finish(); err != nil {
		return formError(err)
	}
	if f.size < f.least {
		return errorf(EntityTooSmall, "your proposed upload is smaller than the minimum allowed size of %d bytes", f.least)
	}
	return io.EOF
}

// signature returns the fields of the form that concern the signature of its policy.
func (f *form) signature() sigv4.Form {
	return sigv4.Form{
		Algorithm: f.fields["x-amz-algorithm"], Credential: f.fields["x-amz-credential"], Date: f.fields["x-amz-date"],
		Signature: f.fields["x-amz-signature"], Policy: f.fields["policy"],
	}
}

// header converts the fields of the form to the headers that a PUT would have: those stored with
// the object, and those about the request. Other fields are ignored.
func (f *form) header() (http.Header, error) {
	h := http.Header{}
	for _, field := range f.names {
		name, value := textproto.CanonicalMIMEHeaderKey(field), f.fields[field]
		switch {
		case field == "acl":
			name = "X-Amz-Acl"
		case slices.Contains(signing, field):
			continue
		case strings.HasPrefix(field, "x-amz-"), slices.Contains(kept, name), name == "Content-Md5":
		default:
			continue
		}
		if !isToken(field) || !web.IsHeaderValue(value) {
			return nil, errorf(InvalidArgument, "the field %.64q cannot be a header", field)
		}
		if value != "" || strings.HasPrefix(name, metaPrefix) { // other empty fields have no effect
			h[name] = []string{value}
		}
	}
	return h, nil
}

// signing are the fields of the signature, which header ignores.
var signing = []string{"x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"}

// isToken reports whether text is a valid header name (RFC 9110, section 5.6.2).
func isToken(text string) bool {
	for i := range len(text) {
		c := text[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return text != ""
}

// postObject answers POST Object: it stores the file of a form. It reads the file only after the
// client was authorized.
func (s *surface) postObject(w http.ResponseWriter, r *request) error {
	if err := r.held.Grow(formMemory); err != nil { // until the file has arrived
		return err
	}
	if r.form == nil { // authenticated by a bearer token
		var err error
		if r.form, err = s.readForm(w, r); err != nil {
			return err
		}
		if r.form.fields["x-amz-signature"] != "" {
			return errorf(AccessDenied, "only one way of authentication is allowed: an Authorization header, or the signature of a form")
		}
	}
	form := r.form
	if _, given := form.fields["x-amz-security-token"]; given {
		return &sigv4.Error{Code: sigv4.CodeToken, Detail: "there are no security tokens here"}
	}
	if b, given := form.fields["bucket"]; given && b != r.bucket {
		return errorf(InvalidArgument, "the field bucket names another bucket than the path")
	}
	if r.key = form.fields["key"]; r.key == "" {
		return errorf(InvalidArgument, "bucket POST must contain a field named 'key' that is not empty: if it is specified, please check the order of the fields")
	}
	file := &formFile{form: form, most: s.maxObject}
	if text, given := form.fields["policy"]; given {
		p, err := readPolicy(text)
		if err != nil {
			return err
		}
		if err := p.judge(form, r.bucket, r.key, s.now()); err != nil {
			return err
		}
		file.least, file.most = p.least, min(file.most, p.most)
	}
	location := s.locationOf(r)
	// The fields of a form replace the headers of a PUT.
	header, err := form.header()
	if err != nil {
		return err
	}
	r.Request = r.WithContext(r.Context()) // a copy
	r.Header = header
	if err := r.check(s); err != nil {
		return err
	}
	o, err := s.storeFile(r, file)
	if err != nil {
		return err
	}
	return answerForm(w, r, &o, location)
}

// storeFile stores the file of a form, with the attributes in the headers of r.
func (s *surface) storeFile(r *request, file *formFile) (o state.Object, err error) {
	if err := s.checkPut(r); err != nil {
		return o, err
	}
	a, err := attributesOf(r.Header)
	if err != nil {
		return o, err
	}
	if text := r.form.fields["tagging"]; text != "" {
		if a.Tags, err = readTagging([]byte(text), state.MaxTags); err != nil {
			return o, err
		}
		if err = checkTags(a.Tags, state.MaxTags); err != nil {
			return o, err
		}
	}
	if r.ContentLength > file.most+maxFormHead+maxFormTail {
		return o, errorf(EntityTooLarge, "your proposed upload exceeds the maximum allowed size of %d bytes", file.most)
	}
	c := &content{reader: file, wire: r.form.wire, size: -1}
	if c.md5, err = contentMD5(r.Header); err != nil {
		return o, err
	}
	if c.algorithm, c.want, err = checksumHeader(r.Header); err != nil {
		return o, err
	}
	c.orDefault()
	s.reads(r, c.wire)
	ctx, fuse, cancel := web.Burn(r.Context(), caseTimeout)
	defer cancel()
	return s.objects.Put(ctx, r.account(), r.bucket, objects.PutRequest{Key: r.key, Attributes: a, Body: c.whole(fuse)})
}

// answerForm sends the answer that the form asks for: a redirect, or status 200, 201 or 204.
// location is the URL of the object.
func answerForm(w http.ResponseWriter, r *request, o *state.Object, location string) error {
	identify(w.Header(), o)
	sayChecksums(w.Header(), o)
	if to, ok := redirection(r.form.fields[redirect], r, o); ok {
		w.Header().Set("Location", to)
		return web.Empty(w, http.StatusSeeOther)
	}
	w.Header().Set("Location", location)
	switch r.form.fields["success_action_status"] {
	case "200":
		return web.Empty(w, http.StatusOK)
	case "201":
		x := newXML()
		x.begin("PostResponse")
		x.text("Location", location)
		x.text("Bucket", r.bucket)
		x.text("Key", r.key)
		x.etag(o.ETag)
		x.end("PostResponse")
		return x.send(w, http.StatusCreated)
	}
	return web.Empty(w, http.StatusNoContent)
}

// redirection returns the URL to which the client is redirected after the upload: to, with the
// bucket, key and ETag of the object added to its query. It returns false if to is no http or
// https URL.
func redirection(to string, r *request, o *state.Object) (string, bool) {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", false
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += "bucket=" + url.QueryEscape(r.bucket) + "&key=" + url.QueryEscape(r.key) + "&etag=" + url.QueryEscape(`"`+o.ETag+`"`)
	return u.String(), true
}
