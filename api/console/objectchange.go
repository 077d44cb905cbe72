package console

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// refusedObject returns a text for the user if err was caused by the values that they entered for
// an object, and "" otherwise.
func refusedObject(err error) string {
	if errors.Is(err, state.ErrPrecondition) {
		return "There is an object of that key already, or this one has changed meanwhile. Nothing was changed."
	}
	return refusal(err, state.CodeInvalid, state.CodeTooLarge, state.CodeQuota, state.CodeNoSpace)
}

// refuseObject answers with the page of an object, the text problem, and the values that the user
// entered.
func (s *surface) refuseObject(c *call, problem string) error {
	d, err := s.objectData(c)
	if err != nil {
		return err
	}
	d.Error = problem
	if form := c.r.PostForm; form.Has("to") {
		d.To = form.Get("to")
	} else if form.Has("tags") {
		d.Tags, d.KeepTags = form.Get("tags"), false
	}
	return s.showObject(c, http.StatusBadRequest, d)
}

// moveObject serves POST /buckets/{bucket}/object/move. It moves the object to another key, or
// with the form field copy copies it there. If there already is an object with that key, nothing
// changes.
func (s *surface) moveObject(c *call) error {
	form := c.r.PostForm
	to, stays := form.Get("to"), form.Get("copy") != ""
	o, err := s.objectOf(c)
	if err != nil {
		return err
	}
	switch {
	case o.Marker || c.version() != "":
		return web.BadRequest("only a current object can be moved")
	case checkKey(to) != nil:
		return s.refuseObject(c, fmt.Sprintf("A key has 1 to %d bytes of UTF-8 without the character U+0000.", state.MaxKeyBytes))
	case to == o.Key:
		return s.refuseObject(c, "That is the key already.")
	}
	ctx, bucket := c.asking(c.ctx), c.bucketName()
	_, err = s.Objects.Copy(ctx, c.who.Account, bucket, objects.CopyRequest{
		Key: to, SourceBucket: bucket, Source: o.Key, StorageClass: o.StorageClass, If: state.Condition{Absent: true},
	})
	if problem := refusedObject(err); problem != "" {
		return s.refuseObject(c, problem)
	}
	if err != nil {
		return fmt.Errorf("move object: %w", err)
	}
	if !stays {
		// Only the object that was copied: one that was stored under the key meanwhile stays.
		_, err = s.Objects.Delete(ctx, c.who.Account, bucket, o.Key, "", state.Condition{Match: []string{o.ETag}})
	}
	if err != nil && !isAbsent(err) {
		return copiedOnly(o.Key, to, err)
	}
	return c.redirect(objectAddress(bucket, to, ""))
}

// copiedOnly returns the error of a move that has made the copy but has failed to delete the
// original.
func copiedOnly(from, to string, err error) error {
	t := troubleOf(err)
	if errors.Is(err, state.ErrPrecondition) {
		t.Detail = "it has changed meanwhile"
	}
	half := web.Errorf(t.Status, "COPIED_ONLY", "the copy %q was made, but %q was not deleted: %s", to, from, t.Detail)
	return errors.Join(half, err)
}

// restoreObject serves POST /buckets/{bucket}/object/restore. It copies an older version to a new
// current version.
func (s *surface) restoreObject(c *call) error {
	o, err := s.objectOf(c)
	if err != nil {
		return err
	}
	if o.Marker || c.version() == "" {
		return web.BadRequest("only an older version can be restored")
	}
	_, err = s.Objects.Copy(c.asking(c.ctx), c.who.Account, c.bucketName(), objects.CopyRequest{
		Key: o.Key, SourceBucket: c.bucketName(), Source: o.Key, SourceVersion: c.version(), StorageClass: o.StorageClass,
	})
	if problem := refusedObject(err); problem != "" {
		return s.refuseObject(c, problem)
	}
	if err != nil {
		return fmt.Errorf("restore object: %w", err)
	}
	return c.redirect(objectAddress(c.bucketName(), o.Key, ""))
}

// tagObject serves POST /buckets/{bucket}/object/tags: it replaces all tags of an object.
func (s *surface) tagObject(c *call) error {
	o, err := s.objectOf(c)
	if err != nil {
		return err
	}
	pairs, err := parseMeta(c.r.PostForm.Get("tags"))
	if err == nil {
		var tags []state.Tag
		for k, v := range pairs {
			tags = append(tags, state.Tag{Key: k, Value: v})
		}
		slices.SortFunc(tags, func(a, b state.Tag) int { return strings.Compare(a.Key, b.Key) })
		err = s.Objects.SetTags(c.asking(c.ctx), c.who.Account, c.bucketName(), o.Key, c.version(), tags)
	}
	if problem := refusedObject(err); problem != "" {
		return s.refuseObject(c, problem)
	}
	if err != nil {
		return fmt.Errorf("set tags: %w", err)
	}
	return c.redirect(objectAddress(c.bucketName(), o.Key, c.version()))
}

// setVersioning serves POST /buckets/{bucket}/versioning: it enables or suspends the versioning
// of a bucket.
func (s *surface) setVersioning(c *call) error {
	to := state.Suspended
	if c.r.PostForm.Get("versioning") == "on" {
		to = state.Versioned
	}
	if err := s.Objects.SetVersioning(c.asking(c.ctx), c.who.Account, c.bucketName(), to); err != nil {
		return fmt.Errorf("set versioning: %w", err)
	}
	return c.redirect(bucketAddress(c.bucketName(), ""))
}

// Values of the CORS rules that the console sets.
const (
	// corsAge is how long a browser may cache the answer to a preflight request, in seconds.
	corsAge = 3600
	// maxCorsOrigins is the maximum number of origins of a rule.
	maxCorsOrigins = 100
)

// corsForm has the values of the form for the CORS rule of a bucket.
type corsForm struct {
	Origins string // one origin in each line
	Write   bool   // scripts may also store and delete
	Other   bool   // the bucket has rules, set by a program, that the form cannot show
}

// corsFormOf returns the form with the CORS rules of a bucket.
func corsFormOf(rules []state.CorsRule) corsForm {
	if len(rules) == 0 {
		return corsForm{}
	}
	r := rules[0]
	f := corsForm{Origins: strings.Join(r.Origins, "\n"), Write: slices.Contains(r.Methods, http.MethodPut)}
	like := corsRule(r.Origins, f.Write)
	f.Other = len(rules) > 1 || !slices.Equal(r.Methods, like.Methods) || !slices.Equal(r.Headers, like.Headers) || !slices.Equal(r.Expose, like.Expose)
	return f
}

// corsRule returns the CORS rule that allows scripts of these origins to read objects, and with
// write also to change them.
func corsRule(origins []string, write bool) state.CorsRule {
	methods := []string{http.MethodGet, http.MethodHead}
	if write {
		methods = append(methods, http.MethodPut, http.MethodPost, http.MethodDelete)
	}
	return state.CorsRule{Origins: origins, Methods: methods, Headers: []string{"*"}, Expose: []string{"ETag"}, MaxAge: corsAge}
}

// setCors serves POST /buckets/{bucket}/cors. It sets one CORS rule for all entered origins.
// Without origins it removes all rules.
func (s *surface) setCors(c *call) error {
	origins := strings.Fields(c.r.PostForm.Get("origins"))
	var rules []state.CorsRule
	if len(origins) > 0 {
		rules = []state.CorsRule{corsRule(origins, c.r.PostForm.Get("write") != "")}
	}
	for _, o := range origins {
		if !validOrigin(o) {
			return s.showBucket(c, http.StatusBadRequest, fmt.Sprintf("%q is not an origin like https://example.org, and not *.", o))
		}
	}
	if len(origins) > maxCorsOrigins {
		return s.showBucket(c, http.StatusBadRequest, fmt.Sprintf("A rule has up to %d origins.", maxCorsOrigins))
	}
	err := s.Objects.SetCors(c.asking(c.ctx), c.who.Account, c.bucketName(), rules)
	if problem := refusal(err, state.CodeInvalid, state.CodeTooLarge, state.CodeQuota); problem != "" {
		return s.showBucket(c, http.StatusBadRequest, problem)
	}
	if err != nil {
		return fmt.Errorf("set CORS: %w", err)
	}
	return c.redirect(bucketAddress(c.bucketName(), ""))
}

// validOrigin reports whether text is "*" or an origin as browsers send it (RFC 6454, section 6).
// One "*" inside the origin stands for any text.
func validOrigin(text string) bool {
	if text == "*" {
		return true
	}
	scheme, host, ok := strings.Cut(text, "://")
	return ok && (scheme == "https" || scheme == "http") && host != "" && strings.Count(host, "*") <= 1 && !strings.ContainsAny(host, "/?#@\\")
}
