package console

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// objectHeaders are the headers of an object that its page can change, each with an example
// value.
var objectHeaders = []struct{ name, example string }{
	{"Content-Type", "text/html; charset=utf-8"},
	{"Cache-Control", "max-age=3600"},
	{"Content-Disposition", "attachment"},
	{"Content-Encoding", "gzip"},
	{"Content-Language", "en"},
	{"Expires", "Wed, 01 Jan 2031 00:00:00 GMT"},
}

// headerField is the form field for one header of an object.
type headerField struct{ Name, Value, Example string }

// metadataForm has the values of the form for the headers and the metadata of an object.
type metadataForm struct {
	Headers []headerField
	Meta    string // one name=value in each line
	Keep    bool   // the metadata cannot be written as lines, so the form does not change it
	Sealed  bool   // the object has metadata of encryption, which the form neither shows nor changes
	// ETag and Created identify the version for which the form was rendered.
	ETag    string
	Created state.Millis
	Open    bool // the page shows the form opened, because its values were rejected
}

// metadataFormOf returns the form with the values of an object.
func metadataFormOf(o *state.Object) metadataForm {
	f := metadataForm{ETag: o.ETag, Created: o.Created}
	for _, h := range objectHeaders {
		f.Headers = append(f.Headers, headerField{h.name, o.Headers[h.name], h.example})
	}
	open := maps.Clone(o.Meta)
	for _, name := range web.EncryptionMeta() {
		delete(open, name)
	}
	f.Sealed = len(open) < len(o.Meta)
	var lines bool
	f.Meta, lines = linesOf(open)
	f.Keep = !lines
	return f
}

// apply returns the attributes of an object after the change of the form. Headers and metadata
// that the form does not contain stay. Errors are state.CodeInvalid.
func (f metadataForm) apply(o *state.Object) (objects.Attributes, error) {
	a := objects.Attributes{Headers: map[string]string{}, Meta: map[string]string{}}
	maps.Copy(a.Headers, o.Headers)
	for _, h := range f.Headers {
		if !web.IsHeaderValue(h.Value) {
			return a, state.Errorf(state.CodeInvalid, "the value of %s has a character that no header may have", h.Name)
		}
		if a.Headers[h.Name] = h.Value; h.Value == "" {
			delete(a.Headers, h.Name)
		}
	}
	if f.Keep {
		a.Meta = o.Meta
		return a, nil
	}
	meta, err := parseMeta(f.Meta)
	if err != nil {
		return a, err
	}
	for name, value := range meta {
		lower := strings.ToLower(name)
		_, twice := a.Meta[lower]
		switch {
		case !isHeaderName(lower):
			return a, state.Errorf(state.CodeInvalid, "%q is no name of metadata: use letters, digits, hyphens and underscores", name)
		case slices.Contains(web.EncryptionMeta(), lower):
			return a, state.Errorf(state.CodeInvalid, "the metadata %q belongs to encrypted objects: the programs that encrypt them set it", lower)
		case twice:
			return a, state.Errorf(state.CodeInvalid, "the metadata %q is there twice: capital letters make no other name", lower)
		case !web.IsHeaderValue(value):
			return a, state.Errorf(state.CodeInvalid, "the value of %s has a character that no header may have", name)
		}
		a.Meta[lower] = value
	}
	for _, name := range web.EncryptionMeta() {
		if value, ok := o.Meta[name]; ok {
			a.Meta[name] = value
		}
	}
	return a, nil
}

// isHeaderName reports whether text can be the end of a header name, after x-amz-meta-.
func isHeaderName(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	})
}

// metadataFormIn returns the form in a request.
func metadataFormIn(c *call) (metadataForm, error) {
	form := c.r.PostForm
	created, err := strconv.ParseInt(form.Get("created"), 10, 64)
	if err != nil || form.Get("etag") == "" {
		return metadataForm{}, web.BadRequest("the form does not say which version it is about")
	}
	f := metadataForm{Meta: form.Get("meta"), Keep: !form.Has("meta"), ETag: form.Get("etag"), Created: state.Millis(created), Open: true}
	for _, h := range objectHeaders {
		f.Headers = append(f.Headers, headerField{h.name, strings.TrimSpace(form.Get(h.name)), h.example})
	}
	return f, nil
}

// changeMetadata serves POST /buckets/{bucket}/object/metadata. It copies the object onto itself
// with other headers and metadata; content and tags stay. If the object has changed since the
// form was rendered, it changes nothing.
func (s *surface) changeMetadata(c *call) error {
	o, err := s.objectOf(c)
	if err != nil {
		return err
	}
	f, err := metadataFormIn(c)
	if err != nil {
		return err
	}
	if o.Marker || c.version() != "" {
		return web.BadRequest("only the metadata of a current object can be changed")
	}
	a := objects.Attributes{}
	_, err = s.Objects.Copy(c.asking(c.ctx), c.who.Account, c.bucketName(), objects.CopyRequest{
		Key: o.Key, SourceBucket: c.bucketName(), Source: o.Key, Replace: &a, KeepTags: true, StorageClass: o.StorageClass, If: state.Condition{Match: []string{f.ETag}},
		SourceIf: func(source *state.Object) (err error) {
			if source.ETag != f.ETag || source.Created != f.Created {
				return state.ErrPrecondition
			}
			a, err = f.apply(source)
			return err
		},
	})
	if errors.Is(err, state.ErrPrecondition) {
		return s.refuseMetadata(c, http.StatusConflict, f, "The object has changed since you opened this page, so nothing was changed. The page shows it as it is now, and the form has what you entered. Save again to apply it to the present object.")
	}
	if problem := refusedObject(err); problem != "" {
		return s.refuseMetadata(c, http.StatusBadRequest, f, problem)
	}
	if err != nil {
		return fmt.Errorf("change metadata: %w", err)
	}
	return c.redirect(objectAddress(c.bucketName(), o.Key, ""))
}

// refuseMetadata answers with the page of the current object, the text problem, and the values
// that the user entered.
func (s *surface) refuseMetadata(c *call, status int, entered metadataForm, problem string) error {
	d, err := s.objectData(c)
	if err != nil {
		return err
	}
	d.Error = problem
	d.Metadata.Headers, d.Metadata.Open = entered.Headers, true
	if !entered.Keep {
		d.Metadata.Meta, d.Metadata.Keep = entered.Meta, false
	}
	return s.showObject(c, status, d)
}
