package s3

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// In S3 an access list makes a bucket public. Here "public" means that every IPFS peer can
// fetch its objects by their CIDs; over HTTP every request still needs credentials. Two
// lists are supported: full control for the owner, and the same with READ for everybody.
// See https://docs.aws.amazon.com/AmazonS3/latest/userguide/acl-overview.html.

// allUsers is the URI of the group "all users" in the access control lists (ACLs) of Amazon S3.
const allUsers = groups + "global/AllUsers"

const groups = "http://acs.amazonaws.com/groups/"

// knownGroups has the URIs of the predefined groups in ACLs of Amazon S3.
var knownGroups = []string{allUsers, groups + "global/AuthenticatedUsers", groups + "s3/LogDelivery"}

// Canned ACLs that are supported.
const (
	cannedPrivate = "private"
	cannedPublic  = "public-read"
	cannedOwner   = "bucket-owner-full-control" // the owner of a bucket has these rights anyway
	cannedReader  = "bucket-owner-read"
)

// cannedLists has all canned ACLs of Amazon S3, supported or not.
var cannedLists = []string{
	cannedPrivate, cannedPublic, cannedOwner, cannedReader, "public-read-write", "authenticated-read", "aws-exec-read", "log-delivery-write",
}

// cannedACL returns the canned ACL in the header x-amz-acl, or "" if it is absent. An unknown
// name is an error.
func cannedACL(h http.Header) (string, error) {
	const header = "X-Amz-Acl"
	switch acl := h.Get(header); {
	case len(h[header]) > 1:
		return "", errorf(InvalidArgument, "more than one x-amz-acl")
	case acl == "" || slices.Contains(cannedLists, acl):
		return acl, nil
	default:
		return "", errorf(InvalidArgument, "x-amz-acl %.64q is not known", acl)
	}
}

// permissions has the permissions of an ACL, each with the header that grants it.
var permissions = []struct{ name, header string }{
	{"READ", "X-Amz-Grant-Read"},
	{"WRITE", "X-Amz-Grant-Write"},
	{"READ_ACP", "X-Amz-Grant-Read-Acp"},
	{"WRITE_ACP", "X-Amz-Grant-Write-Acp"},
	{fullControl, "X-Amz-Grant-Full-Control"},
}

const fullControl = "FULL_CONTROL"

// maxGrants is the maximum number of grants in an ACL, as in Amazon S3.
const maxGrants = 100

// grant is an entry of an ACL. Exactly one of id, uri and email names the grantee.
type grant struct{ id, uri, email, permission string }

// checkObjectACL returns an error if the headers give an object another ACL than that of its
// bucket. Objects have no ACLs of their own here.
func (s *surface) checkObjectACL(r *request) error {
	if name := grantHeader(r.Header); name != "" {
		return errorf(AccessControlListNotSupported, "the bucket does not allow ACLs: %s", name)
	}
	acl, err := cannedACL(r.Header)
	if err != nil {
		return err
	}
	switch acl {
	case "", cannedOwner:
		return nil
	case cannedPrivate, cannedReader, cannedPublic:
	default:
		return errorf(AccessControlListNotSupported, "the bucket does not allow ACLs: x-amz-acl %s", acl)
	}
	ctx, cancel := r.soon()
	defer cancel()
	b, err := s.objects.Bucket(ctx, r.account(), r.bucket)
	switch {
	case err != nil:
		return err
	case b.Public == (acl == cannedPublic):
		return nil
	case b.Public:
		return errorf(AccessControlListNotSupported, "the bucket does not allow ACLs: it is public with every object in it, so x-amz-acl %s would not be true", acl)
	}
	return errorf(AccessControlListNotSupported, "the bucket does not allow ACLs: its objects are public when it is, by PUT /bucket?acl with x-amz-acl %s", acl)
}

// grantHeader returns the lower-case name of a header x-amz-grant-*, or "" if there is none.
func grantHeader(h http.Header) string {
	for name := range h {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-amz-grant-") {
			return lower
		}
	}
	return ""
}

// bucketACL returns whether the ACL in the headers makes a bucket public. given is false if the
// headers have no ACL.
func bucketACL(h http.Header, owner state.AccountID) (public, given bool, err error) {
	acl, err := cannedACL(h)
	if err != nil {
		return false, false, err
	}
	name := grantHeader(h)
	switch {
	case acl != "" && name != "":
		return false, false, errorf(InvalidRequest, "specifying both Canned ACLs and Header Grants is not allowed")
	case name != "":
		grants, err := headerGrants(h)
		if err != nil {
			return false, false, err
		}
		public, err = judgeGrants(grants, owner)
		return public, true, err
	case acl == cannedPrivate || acl == cannedPublic:
		return acl == cannedPublic, true, nil
	case acl == "" || acl == cannedOwner || acl == cannedReader: // both are for objects
		return false, false, nil
	}
	return false, false, errorf(NotImplemented, "x-amz-acl %s is not implemented for buckets: there are private and public-read", acl)
}

// headerGrants parses the headers x-amz-grant-*: type=value pairs, separated by commas.
func headerGrants(h http.Header) (grants []grant, err error) {
	known := 0
	for _, p := range permissions {
		for _, value := range h[p.header] {
			for text := range strings.SplitSeq(value, ",") {
				kind, who, ok := strings.Cut(strings.Trim(text, " \t"), "=")
				who = strings.Trim(who, " \t")
				if n := len(who); n >= 2 && who[0] == '"' && who[n-1] == '"' {
					who = who[1 : n-1]
				}
				g := grant{permission: p.name}
				switch {
				case !ok || who == "":
					return nil, errorf(InvalidArgument, "%s is a list of id=, uri= and emailAddress=", strings.ToLower(p.header))
				case kind == "id":
					g.id = who
				case kind == "uri":
					g.uri = who
				case kind == "emailAddress":
					g.email = who
				default:
					return nil, errorf(InvalidArgument, "argument format not recognized: %.64q in %s", kind, strings.ToLower(p.header))
				}
				if grants = append(grants, g); len(grants) > maxGrants {
					return nil, errorf(InvalidArgument, "there are more than %d grants", maxGrants)
				}
			}
		}
		if _, there := h[p.header]; there {
			known++
		}
	}
	for name := range h {
		if strings.HasPrefix(name, "X-Amz-Grant-") {
			known--
		}
	}
	if known != 0 {
		return nil, errorf(InvalidArgument, "a header x-amz-grant-* that is not known")
	}
	return grants, nil
}

// judgeGrants returns true for the grants of a public bucket, and false for those of a private
// one. Any other grants are an error.
func judgeGrants(grants []grant, owner state.AccountID) (public bool, err error) {
	owns := false
	for _, g := range grants {
		switch {
		case g.id == string(owner):
			owns = owns || g.permission == fullControl
		case g.id != "":
			return false, errorf(InvalidArgument, "invalid id: accounts have no access to each other's buckets")
		case g.uri == allUsers && g.permission == "READ":
			public = true
		case g.uri != "" && !slices.Contains(knownGroups, g.uri):
			return false, errorf(InvalidArgument, "invalid group uri")
		default:
			return false, errorf(NotImplemented, "a grant of %s is not implemented but to the owner; READ is to %s too", g.permission, allUsers)
		}
	}
	if !owns {
		return false, errorf(NotImplemented, "a bucket whose owner has not %s is not implemented: grant it to id %s", fullControl, owner)
	}
	return public, nil
}

// readACL parses an AccessControlPolicy document and returns whether it makes the bucket public.
// owner is the owner of the bucket.
func readACL(body []byte, owner state.AccountID) (public bool, err error) {
	grants, id, err := readPolicyGrants(body)
	if err != nil {
		var e *Error
		if errors.As(err, &e) && e.Code == MalformedXML {
			e.Code = MalformedACLError
		}
		return false, err
	}
	if id != string(owner) {
		return false, errorf(AccessDenied, "the access list is of another owner")
	}
	return judgeGrants(grants, owner)
}

func readPolicyGrants(body []byte) (grants []grant, owner string, err error) {
	x, err := readXML(body, "AccessControlPolicy")
	if err != nil {
		return nil, "", err
	}
	lists := 0
	for {
		name, ok, err := x.child()
		switch {
		case err != nil:
			return nil, "", err
		case !ok && (owner == "" || lists != 1):
			return nil, "", malformed("AccessControlPolicy has to have one Owner with an ID and one AccessControlList")
		case !ok:
			return grants, owner, x.finish()
		case name == "Owner" && owner == "":
			owner, err = x.ownerID()
		case name == "AccessControlList":
			lists++
			grants, err = x.grants(grants)
		default:
			return nil, "", malformed("AccessControlPolicy has %.64q in it", name)
		}
		if err != nil {
			return nil, "", err
		}
	}
}

// ownerID parses an Owner element and returns its ID.
func (x *xmlReader) ownerID() (id string, err error) {
	g, err := x.grantee("Owner")
	if err == nil && (g.id == "" || g.uri != "" || g.email != "") {
		err = malformed("Owner has to have an ID")
	}
	return g.id, err
}

func (x *xmlReader) grants(grants []grant) ([]grant, error) {
	for {
		name, ok, err := x.child()
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return grants, nil
		case name != "Grant":
			return nil, malformed("AccessControlList has %.64q in it", name)
		case len(grants) == maxGrants:
			return nil, malformed("there are more than %d grants", maxGrants)
		}
		g, err := x.grant()
		if err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
}

func (x *xmlReader) grant() (g grant, err error) {
	grantees, permission := 0, ""
	for {
		name, ok, err := x.child()
		switch {
		case err != nil:
			return g, err
		case ok && name == "Grantee":
			grantees++
			g, err = x.grantee("Grantee")
		case ok && name == "Permission" && permission == "":
			permission, err = x.text()
		case ok:
			return g, malformed("Grant has %.64q in it", name)
		case grantees != 1 || !slices.ContainsFunc(permissions, func(p struct{ name, header string }) bool { return p.name == permission }):
			return g, malformed("Grant has to have one Grantee and one Permission")
		default:
			g.permission = permission
			return g, nil
		}
		if err != nil {
			return g, err
		}
	}
}

// grantee parses the Grantee of a Grant into the id, uri or email of g. element is its name in
// errors.
func (x *xmlReader) grantee(element string) (g grant, err error) {
	names := 0
	for {
		name, ok, err := x.child()
		if err != nil {
			return g, err
		}
		if !ok {
			if names != 1 || g == (grant{}) {
				return g, malformed("%s has to have one ID, URI or EmailAddress", element)
			}
			return g, nil
		}
		value, err := x.text()
		if err != nil {
			return g, err
		}
		value = strings.TrimSpace(value)
		switch name {
		case "ID":
			g.id = value
		case "URI":
			g.uri = value
		case "EmailAddress":
			g.email = value
		case "DisplayName":
			continue
		default:
			return g, malformed("%s has %.64q in it", element, name)
		}
		names++
	}
}

// putBucketACL answers PutBucketAcl: it makes a bucket public or private.
func (s *surface) putBucketACL(w http.ResponseWriter, r *request) error {
	body, err := s.readSmall(w, r, maxConfiguration)
	if err != nil {
		return err
	}
	public, given, err := bucketACL(r.Header, r.account())
	switch {
	case err != nil:
	case given && len(body) > 0:
		err = errorf(UnexpectedContent, "this request does not support content: the headers have an access list too")
	case !given && len(body) == 0:
		err = errorf(MissingSecurityHeader, "your request was missing a required header: x-amz-acl")
	case !given:
		public, err = readACL(body, r.account())
	}
	if err != nil {
		return err
	}
	ctx, cancel := r.soon()
	defer cancel()
	if err := s.objects.SetPublic(ctx, r.account(), r.bucket, public); err != nil {
		return err
	}
	return web.Empty(w, http.StatusOK)
}

// probeACL returns the ACL of a bucket: FULL_CONTROL for the owner, and READ for everybody if the
// bucket is public.
func probeACL(_ *surface, r *request, b *state.Bucket) (*xmlWriter, error) {
	x := newXML()
	x.root("AccessControlPolicy")
	x.owner(r)
	x.begin("AccessControlList")
	x.grant("CanonicalUser", fullControl, func() {
		x.text("ID", string(r.who.Account))
		x.text("DisplayName", r.who.Email)
	})
	if b.Public {
		x.grant("Group", "READ", func() { x.text("URI", allUsers) })
	}
	x.end("AccessControlList")
	x.end("AccessControlPolicy")
	return x, nil
}

// grant writes one Grant of an ACL. kind is the xsi:type of the grantee, and who writes the
// elements of the grantee.
func (x *xmlWriter) grant(kind, permission string, who func()) {
	x.begin("Grant")
	x.b = append(x.b, `<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="`+kind+`">`...)
	who()
	x.end("Grantee")
	x.text("Permission", permission)
	x.end("Grant")
}

func probePolicyStatus(_ *surface, _ *request, b *state.Bucket) (*xmlWriter, error) {
	x := newXML()
	x.root("PolicyStatus")
	x.truth("IsPublic", b.Public)
	x.end("PolicyStatus")
	return x, nil
}

// objectACL answers GetObjectAcl with the ACL of the object's bucket.
func (s *surface) objectACL(w http.ResponseWriter, r *request) error {
	if _, err := s.current(r); err != nil {
		return err
	}
	return s.probe(probeACL)(w, r)
}
