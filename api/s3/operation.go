package s3

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// permission is what a token must permit for an operation. The zero value is granted to nobody.
type permission uint8

const (
	needRead   permission = iota + 1 // storage:read
	needWrite                        // storage:write
	needDelete                       // storage:delete; storage:write includes it
	needCopy                         // storage:read for the source, and storage:write
)

func (p permission) granted(who *accounts.Principal) bool {
	switch p {
	case needRead:
		return who.May(state.ScopeRead)
	case needWrite:
		return who.May(state.ScopeWrite)
	case needDelete:
		return who.May(state.ScopeDelete) || who.May(state.ScopeWrite)
	case needCopy:
		return who.May(state.ScopeRead) && who.May(state.ScopeWrite)
	}
	return false
}

// operation is a row of the table that maps requests to handlers.
type operation struct {
	name   string // name in the S3 API; GetObjectBao is an extension
	level  level
	method string
	sub    string // sub-resource, a query parameter such as acl; "": none
	copies bool   // the request has x-amz-copy-source
	need   permission
	serve  func(w http.ResponseWriter, r *request) error
}

// operations returns the complete table of operations. docs/s3.md documents it.
func (s *surface) operations() []operation {
	const (
		service = levelService
		bucket  = levelBucket
		object  = levelObject

		get  = http.MethodGet
		head = http.MethodHead
		put  = http.MethodPut
		post = http.MethodPost
		del  = http.MethodDelete
	)
	return append(s.unset(), []operation{
		{"ListBuckets", service, get, "", false, needRead, s.listBuckets},

		{"CreateBucket", bucket, put, "", false, needWrite, s.createBucket},
		{"DeleteBucket", bucket, del, "", false, needDelete, s.deleteBucket},
		{"HeadBucket", bucket, head, "", false, needRead, s.headBucket},
		{"ListObjects", bucket, get, "", false, needRead, s.listObjects},
		{"ListObjectsV2", bucket, get, "list-type", false, needRead, s.listObjectsV2},
		{"DeleteObjects", bucket, post, "delete", false, needDelete, s.deleteObjects},
		{"PostObject", bucket, post, "", false, needWrite, s.postObject},
		{"ListMultipartUploads", bucket, get, "uploads", false, needRead, s.listUploads},
		{"GetBucketLocation", bucket, get, "location", false, needRead, s.probe(probeLocation)},
		{"GetBucketVersioning", bucket, get, "versioning", false, needRead, s.getVersioning},
		{"PutBucketVersioning", bucket, put, "versioning", false, needWrite, s.putVersioning},
		{"ListObjectVersions", bucket, get, "versions", false, needRead, s.listVersions},
		{"GetBucketAcl", bucket, get, "acl", false, needRead, s.probe(probeACL)},
		{"PutBucketAcl", bucket, put, "acl", false, needWrite, s.putBucketACL},
		{"GetBucketPolicyStatus", bucket, get, "policyStatus", false, needRead, s.probe(probePolicyStatus)},
		{"GetBucketCors", bucket, get, "cors", false, needRead, s.getCors},
		{"PutBucketCors", bucket, put, "cors", false, needWrite, s.putCors},
		{"DeleteBucketCors", bucket, del, "cors", false, needWrite, s.deleteCors},
		{"GetBucketTagging", bucket, get, "tagging", false, needRead, s.getBucketTagging},
		{"PutBucketTagging", bucket, put, "tagging", false, needWrite, s.putBucketTagging},
		{"DeleteBucketTagging", bucket, del, "tagging", false, needWrite, s.deleteBucketTagging},

		{"CreateShare", bucket, put, "share", false, needWrite, s.createShare},
		{"DeleteShare", bucket, del, "share", false, needWrite, s.deleteShare},
		{"ListShares", bucket, get, "shares", false, needRead, s.listShares},

		{"PutObject", object, put, "", false, needWrite, s.putObject},
		{"CopyObject", object, put, "", true, needCopy, s.copyObject},
		{"GetObject", object, get, "", false, needRead, s.getObject},
		{"HeadObject", object, head, "", false, needRead, s.getObject},
		{"DeleteObject", object, del, "", false, needDelete, s.deleteObject},
		{"GetObjectBao", object, get, "bao", false, needRead, s.getBao},
		{"GetObjectAcl", object, get, "acl", false, needRead, s.objectACL},
		{"GetObjectAttributes", object, get, "attributes", false, needRead, s.getAttributes},
		{"GetObjectTagging", object, get, "tagging", false, needRead, s.getTagging},
		{"PutObjectTagging", object, put, "tagging", false, needWrite, s.putTagging},
		{"DeleteObjectTagging", object, del, "tagging", false, needWrite, s.deleteTagging},
		{"CreateMultipartUpload", object, post, "uploads", false, needWrite, s.createUpload},
		{"UploadPart", object, put, "uploadId", false, needWrite, s.putPart},
		{"UploadPartCopy", object, put, "uploadId", true, needCopy, s.copyPart},
		{"CompleteMultipartUpload", object, post, "uploadId", false, needWrite, s.completeUpload},
		{"AbortMultipartUpload", object, del, "uploadId", false, needWrite, s.abortUpload},
		{"ListParts", object, get, "uploadId", false, needRead, s.listParts},
	}...)
}

// rowKey has the properties of a request that select a row of the table of operations.
type rowKey struct {
	level       level
	method, sub string
	copies      bool
}

// tableOf returns the operations by key. It returns an error for a row without a permission or
// with an unknown sub-resource, and for two rows with the same key.
func tableOf(rows []operation) (map[rowKey]*operation, error) {
	table := make(map[rowKey]*operation, len(rows))
	for i := range rows {
		op := &rows[i]
		key := rowKey{op.level, op.method, op.sub, op.copies}
		switch {
		case op.need == 0:
			return nil, fmt.Errorf("s3: %s does not say who may use it", op.name)
		case table[key] != nil:
			return nil, fmt.Errorf("s3: %s and %s are the same request", op.name, table[key].name)
		case op.sub != "" && !slices.Contains(subResources, op.sub):
			return nil, fmt.Errorf("s3: %s has a sub-resource that is not looked for", op.name)
		}
		table[key] = op
	}
	return table, nil
}

// subResources are the query parameters that select an operation, in sorted order: all of the S3
// API, supported or not, and those of the extensions.
var subResources = []string{
	"abac", "accelerate", "acl", "analytics", "append", "attributes", "bao", "cors", "delete", "encryption", "intelligent-tiering", "inventory",
	"legal-hold", "lifecycle", "list-type", "location", "logging", "max-directory-buckets", "metadataConfiguration", "metadataInventoryTable",
	"metadataJournalTable", "metadataTable", "metrics", "notification", "object-lock", "ownershipControls", "policy", "policyStatus",
	"publicAccessBlock", "rename", "renameObject", "replication", "requestPayment", "restore", "retention", "select", "select-type",
	"session", "share", "shares", "tagging", "torrent", "uploadId", "uploads", "versioning", "versions", "website",
}

// modifiers are the known query parameters that do not select an operation, in sorted order.
var modifiers = []string{
	"after", "bucket-region", "continuation-token", "delimiter", "encoding-type", "fetch-owner", "key-marker", "marker", "max-buckets", "max-keys",
	"max-parts", "max-uploads", "part-number-marker", "partNumber", "prefix", "response-cache-control",
	"response-content-disposition", "response-content-encoding", "response-content-language", "response-content-type",
	"response-expires", "start-after", "upload-id-marker", "version-id-marker", "versionId",
}

// find returns the operation of a request. An unsupported sub-resource is a NotImplemented error:
// if find ignored it, the request could overwrite an object.
func (s *surface) find(r *request) (*operation, error) {
	if r.Method == http.MethodOptions {
		return nil, errorf(AccessForbidden, "CORSResponse: CORS is not enabled for this origin")
	}
	sub, err := s.subResource(r)
	if err != nil {
		return nil, err
	}
	_, copies := r.Header[copySource]
	key := rowKey{r.level, r.Method, sub, copies && r.Method == http.MethodPut && r.level == levelObject && (sub == "" || sub == "uploadId")}
	op := s.table[key]
	switch {
	case op == nil && sub != "":
		return nil, errorf(NotImplemented, "%s with the sub-resource %s is not implemented", r.Method, sub)
	case sub != "uploadId" && changes(r.Method) && r.query.has("partNumber"):
		// Without this check a request for a part would read the whole object.
		return nil, errorf(InvalidArgument, "partNumber needs uploadId")
	case op != nil:
		return op, nil
	}
	e := errorf(MethodNotAllowed, "the specified method is not allowed against this resource")
	return nil, e.with("Allow", strings.Join(s.allowed(r.level), ", "))
}

// subResource returns the sub-resource of a request, or "". An unsupported one is a
// NotImplemented error, also if a supported one is present, because some of Amazon S3 come in
// pairs (select and select-type). An unknown parameter without a value is the same error if the
// request would change something.
func (s *surface) subResource(r *request) (sub string, err error) {
	for _, p := range r.query {
		_, known := slices.BinarySearch(subResources, p.name)
		switch {
		case known && !s.subs[p.name], !known && p.value == "" && changes(r.Method) && !s.harmless(p.name):
			return "", errorf(NotImplemented, "the sub-resource %.64q is not implemented", p.name)
		case known && sub != "" && sub != p.name && err == nil:
			err = errorf(InvalidRequest, "the parameters %s and %s do not go together", sub, p.name)
		case known:
			sub = p.name
		}
	}
	return sub, err
}

func changes(method string) bool { return method != http.MethodGet && method != http.MethodHead }

// harmless reports whether a query parameter without a value may be ignored, because it cannot
// select another operation: a known parameter that only modifies operations, or one that begins
// with x-.
func (s *surface) harmless(name string) bool {
	if _, known := slices.BinarySearch(modifiers, name); known {
		return true
	}
	lower := strings.ToLower(name)
	return strings.HasPrefix(lower, "x-")
}

// allowed returns the HTTP methods that the service, a bucket or an object supports without a
// sub-resource in the query. The Allow header contains them.
func (s *surface) allowed(of level) []string {
	var methods []string
	for key := range s.table {
		if key.level == of && key.sub == "" && !slices.Contains(methods, key.method) {
			methods = append(methods, key.method)
		}
	}
	slices.Sort(methods)
	return methods
}
