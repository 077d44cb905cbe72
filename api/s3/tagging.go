package s3

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxTagging is the maximum size of the body of PutObjectTagging in bytes. It is enough for ten
// tags of maximum length with each character as an XML character reference.
const maxTagging = 128 << 10

func (s *surface) getTagging(w http.ResponseWriter, r *request) error {
	o, err := s.current(r)
	if err != nil {
		return err
	}
	w.Header().Set("X-Amz-Version-Id", string(o.ID))
	return taggingOf(o.Tags).send(w, http.StatusOK)
}

// taggingOf returns a Tagging document with the tags.
func taggingOf(tags []state.Tag) *xmlWriter {
	x := newXML()
	x.root("Tagging")
	x.begin("TagSet")
	for _, t := range tags {
		x.begin("Tag")
		x.text("Key", t.Key)
		x.text("Value", t.Value)
		x.end("Tag")
	}
	x.end("TagSet")
	x.end("Tagging")
	return x
}

func (s *surface) putTagging(w http.ResponseWriter, r *request) error {
	tags, err := s.bodyTags(w, r, maxTagging, state.MaxTags)
	if err != nil {
		return err
	}
	if err := s.setTags(w, r, tags); err != nil {
		return err
	}
	return web.Empty(w, http.StatusOK)
}

func (s *surface) deleteTagging(w http.ResponseWriter, r *request) error {
	if err := s.setTags(w, r, nil); err != nil {
		return err
	}
	return web.Empty(w, http.StatusNoContent)
}

// setTags replaces the tags of the version that the query names, or of the current version. The
// answer has the version id if the bucket has had versioning or if the query names a version.
func (s *surface) setTags(w http.ResponseWriter, r *request, tags []state.Tag) error {
	id, err := r.query.version()
	if err != nil {
		return err
	}
	o, err := s.current(r) // may be a delete marker
	if err != nil {
		return err
	}
	named := id != ""
	if !named && (o.Versioned || o.ID == state.NullVersion) {
		id = o.ID
	}
	ctx, cancel := r.soon()
	defer cancel()
	err = s.objects.SetTags(ctx, r.account(), r.bucket, r.key, id, tags)
	if !named && errors.Is(err, state.ErrNoVersion) {
		return fmt.Errorf("the current version has just been deleted: %w", state.ErrConflict)
	}
	if err == nil && id != "" {
		w.Header().Set("X-Amz-Version-Id", string(id))
	}
	return err
}

// bodyTags reads a body of up to bytes bytes and returns its tags, at most most of them.
func (s *surface) bodyTags(w http.ResponseWriter, r *request, bytes int64, most int) ([]state.Tag, error) {
	body, err := s.readSmall(w, r, bytes)
	if err != nil {
		return nil, err
	}
	tags, err := readTagging(body, most)
	if err != nil {
		return nil, err
	}
	return tags, checkTags(tags, most)
}

// readTagging parses a Tagging document with at most most tags.
func readTagging(body []byte, most int) (tags []state.Tag, err error) {
	x, err := readXML(body, "Tagging")
	if err != nil {
		return nil, err
	}
	sets := 0
	for {
		name, ok, err := x.child()
		switch {
		case err != nil:
			return nil, err
		case !ok && sets == 1:
			return tags, x.finish()
		case !ok || name != "TagSet":
			return nil, malformed("Tagging has to have one TagSet")
		}
		sets++
		if tags, err = x.tagSet(tags, most); err != nil {
			return nil, err
		}
	}
}

func (x *xmlReader) tagSet(tags []state.Tag, most int) ([]state.Tag, error) {
	for {
		name, ok, err := x.child()
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return tags, nil
		case name != "Tag":
			return nil, malformed("TagSet has %.64q in it", name)
		}
		t, err := x.tag()
		if err != nil {
			return nil, err
		}
		if tags = append(tags, t); len(tags) > most {
			return nil, checkTags(tags, most)
		}
	}
}

func (x *xmlReader) tag() (t state.Tag, err error) {
	keys, values := 0, 0
	for {
		name, ok, err := x.child()
		switch {
		case err != nil:
			return t, err
		case ok && name == "Key":
			t.Key, err = x.text()
			keys++
		case ok && name == "Value":
			t.Value, err = x.text()
			values++
		case ok:
			return t, malformed("Tag has %.64q in it", name)
		case keys != 1 || values != 1:
			return t, malformed("Tag has to have one Key and one Value")
		default:
			return t, nil
		}
		if err != nil {
			return t, err
		}
	}
}

// maxBucketTagging is the maximum size of the body of PutBucketTagging in bytes: like maxTagging,
// but for fifty tags.
const maxBucketTagging = 512 << 10

func (s *surface) getBucketTagging(w http.ResponseWriter, r *request) error {
	ctx, cancel := r.soon()
	defer cancel()
	tags, err := s.objects.BucketTags(ctx, r.account(), r.bucket)
	switch {
	case err != nil:
		return err
	case len(tags) == 0:
		return errorf(NoSuchTagSet, "the tag set does not exist")
	}
	return taggingOf(tags).send(w, http.StatusOK)
}

func (s *surface) putBucketTagging(w http.ResponseWriter, r *request) error {
	tags, err := s.bodyTags(w, r, maxBucketTagging, state.MaxBucketTags)
	if err != nil {
		return err
	}
	return s.setBucketTags(w, r, tags)
}

func (s *surface) deleteBucketTagging(w http.ResponseWriter, r *request) error {
	return s.setBucketTags(w, r, nil)
}

// setBucketTags replaces the tags of a bucket and answers 204.
func (s *surface) setBucketTags(w http.ResponseWriter, r *request, tags []state.Tag) error {
	ctx, cancel := r.soon()
	defer cancel()
	if err := s.objects.SetBucketTags(ctx, r.account(), r.bucket, tags); err != nil {
		return err
	}
	return web.Empty(w, http.StatusNoContent)
}
