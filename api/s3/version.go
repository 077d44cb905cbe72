package s3

import (
	"net/http"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// versionID returns text as a version id, or an error if it has an invalid form. The version may
// not exist.
func versionID(text string) (state.VersionID, error) {
	switch {
	case text == "":
		return "", errorf(InvalidArgument, "version id cannot be the empty string")
	case len(text) > state.MaxIDLen || strings.ContainsFunc(text, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' // the characters of ids
	}):
		return "", errorf(InvalidArgument, "invalid version id specified")
	}
	return state.VersionID(text), nil
}

// version returns the parameter versionId, or "" if it is absent.
func (q query) version() (state.VersionID, error) {
	text, given := q.find("versionId")
	if !given {
		return "", nil
	}
	return versionID(text)
}

// current returns the version of the object that the query names, or the current version. For a
// delete marker it returns the error of marked.
func (s *surface) current(r *request) (state.Object, error) {
	id, err := r.query.version()
	if err != nil {
		return state.Object{}, err
	}
	ctx, cancel := r.soon()
	defer cancel()
	o, err := s.objects.Object(ctx, r.account(), r.bucket, r.key, id)
	if err == nil && o.Marker {
		err = marked(&o, id != "")
	}
	return o, err
}

// marked returns the error for a read of a delete marker. It is 404, or 405 if the query names
// the version (named).
func marked(o *state.Object, named bool) error {
	e := errorf(NoSuchKey, "the specified key does not exist")
	if named {
		e = errorf(MethodNotAllowed, "the specified method is not allowed against this resource: the version is a delete marker")
		e = e.with("Allow", http.MethodDelete).with("Last-Modified", httpTime(o.Created))
	}
	return e.with("X-Amz-Delete-Marker", "true").with("X-Amz-Version-Id", string(o.ID))
}

// Values of Status of a versioning configuration.
const (
	versioningEnabled   = "Enabled"
	versioningSuspended = "Suspended"
)

func (s *surface) putVersioning(w http.ResponseWriter, r *request) error {
	body, err := s.readSmall(w, r, maxConfiguration)
	if err != nil {
		return err
	}
	to, err := readVersioning(body)
	if err != nil {
		return err
	}
	ctx, cancel := r.soon()
	defer cancel()
	if err := s.objects.SetVersioning(ctx, r.account(), r.bucket, to); err != nil {
		return err
	}
	return web.Empty(w, http.StatusOK)
}

func (s *surface) getVersioning(w http.ResponseWriter, r *request) error {
	ctx, cancel := r.soon()
	defer cancel()
	b, err := s.objects.Bucket(ctx, r.account(), r.bucket)
	if err != nil {
		return err
	}
	x := newXML()
	x.root("VersioningConfiguration")
	switch b.Versioning {
	case state.Versioned:
		x.text("Status", versioningEnabled)
	case state.Suspended:
		x.text("Status", versioningSuspended)
	}
	x.end("VersioningConfiguration")
	return x.send(w, http.StatusOK)
}

// readVersioning parses a VersioningConfiguration document and returns its Status. The only
// MfaDelete that it accepts is Disabled.
func readVersioning(body []byte) (to state.Versioning, err error) {
	x, err := readXML(body, "VersioningConfiguration")
	if err != nil {
		return to, err
	}
	seen := map[string]string{}
	for {
		name, ok, err := x.child()
		if err != nil {
			return to, err
		}
		if !ok {
			break
		}
		if _, twice := seen[name]; twice || name != "Status" && name != "MfaDelete" {
			return to, malformed("VersioningConfiguration has %.64q in it, or has it twice", name)
		}
		if seen[name], err = x.text(); err != nil {
			return to, err
		}
	}
	if err := x.finish(); err != nil {
		return to, err
	}
	mfa, given := seen["MfaDelete"]
	switch {
	case mfa == "Enabled":
		return to, errorf(NotImplemented, "MFA delete is not implemented")
	case given && mfa != "Disabled":
		return to, malformed("MfaDelete is Enabled or Disabled")
	}
	status, given := seen["Status"]
	switch {
	case status == versioningEnabled:
		return state.Versioned, nil
	case status == versioningSuspended:
		return state.Suspended, nil
	case given:
		return to, malformed("Status is %s or %s", versioningEnabled, versioningSuspended)
	}
	return to, errorf(IllegalVersioningConfigurationException, "the Versioning element must be specified")
}

func (s *surface) listVersions(w http.ResponseWriter, r *request) error {
	l, err := r.query.listing("max-keys")
	if err != nil {
		return err
	}
	keyMarker := r.query.get("key-marker")
	q := state.VersionsQuery{Prefix: l.prefix, Delimiter: l.delimiter, AfterKey: l.behind(keyMarker), Limit: l.limit}
	if marker := r.query.get("version-id-marker"); marker != "" {
		if q.AfterKey == "" {
			return errorf(InvalidArgument, "a version-id marker cannot be specified without a key marker")
		}
		if q.AfterID, err = versionID(marker); err != nil {
			return err
		}
	}
	ctx, cancel := r.soon()
	defer cancel()
	var page state.VersionsPage
	if l.limit == 0 {
		_, err = s.objects.Bucket(ctx, r.account(), r.bucket)
	} else {
		page, err = s.objects.Versions(ctx, r.account(), r.bucket, q)
	}
	if err != nil {
		return err
	}
	x := newXML()
	x.root("ListVersionsResult")
	x.text("Name", r.bucket)
	x.text("Prefix", l.encode(l.prefix))
	x.text("KeyMarker", l.encode(keyMarker))
	x.text("VersionIdMarker", string(q.AfterID))
	if page.Truncated {
		x.text("NextKeyMarker", l.encode(page.NextKey))
		if page.NextID != "" { // it is not a prefix
			x.text("NextVersionIdMarker", string(page.NextID))
		}
	}
	l.echo(x, page.Truncated)
	for i := range page.Versions {
		x.version(r, &l, &page.Versions[i], page.Latest[i])
	}
	for _, prefix := range page.Prefixes {
		x.commonPrefix(l.encode(prefix))
	}
	x.end("ListVersionsResult")
	return x.sendPage(w, r)
}

// version writes one version or delete marker of a list. latest is true for the current version
// of its key.
func (x *xmlWriter) version(r *request, l *listing, o *state.Object, latest bool) {
	element := "Version"
	if o.Marker {
		element = "DeleteMarker"
	}
	x.begin(element)
	x.text("Key", l.encode(o.Key))
	x.text("VersionId", string(o.ID))
	x.truth("IsLatest", latest)
	x.time("LastModified", o.Created)
	if !o.Marker {
		x.listed(o)
	}
	x.owner(r)
	x.end(element)
}
