package s3

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxConfiguration is the maximum size of the bodies of CreateBucket, PutBucketAcl and
// PutBucketVersioning, in bytes.
const maxConfiguration = 64 << 10

// listBuckets answers ListBuckets with a page of the caller's buckets. All buckets are in one
// region, so a filter for another region matches none.
func (s *surface) listBuckets(w http.ResponseWriter, r *request) error {
	const most = 10_000 // as in Amazon S3
	limit, err := r.query.ranged("max-buckets", 1, most)
	if err != nil {
		return err
	}
	limit = cmp.Or(limit, most)
	after, err := fromToken(r.query.get("continuation-token"))
	if err != nil {
		return err
	}
	ctx, cancel := r.soon()
	defer cancel()
	all, err := s.objects.Buckets(ctx, r.account())
	if err != nil {
		return err
	}
	prefix, region := r.query.get("prefix"), r.query.get("bucket-region")
	if region != "" && region != s.region {
		all = nil
	}
	// As in Amazon S3, an answer to a filtered or paged request also has the region of each
	// bucket.
	located := region != "" || prefix != "" || r.query.has("max-buckets") || r.query.has("continuation-token")
	x := newXML()
	x.root("ListAllMyBucketsResult")
	x.owner(r)
	x.begin("Buckets")
	n, last, truncated := 0, "", false
	for i := range all {
		b := &all[i]
		if !strings.HasPrefix(b.Name, prefix) || b.Name <= after {
			continue
		}
		if truncated = n == limit; truncated {
			break
		}
		x.begin("Bucket")
		x.text("Name", b.Name)
		x.time("CreationDate", b.Created)
		if located {
			x.text("BucketRegion", s.region)
		}
		x.end("Bucket")
		n, last = n+1, b.Name
	}
	x.end("Buckets")
	if prefix != "" {
		x.text("Prefix", prefix)
	}
	if truncated {
		x.text("ContinuationToken", toToken(last))
	}
	x.end("ListAllMyBucketsResult")
	return x.send(w, http.StatusOK)
}

// createBucket answers CreateBucket. It accepts any region in the body and ignores it, because
// clients are configured with any region.
func (s *surface) createBucket(w http.ResponseWriter, r *request) error {
	public, _, err := bucketACL(r.Header, r.account())
	if err != nil {
		return err
	}
	if lock := r.Header.Get("X-Amz-Bucket-Object-Lock-Enabled"); lock != "" && !strings.EqualFold(lock, "false") {
		return errorf(NotImplemented, "object lock is not implemented")
	}
	if err := checkOwnership(r.Header); err != nil {
		return err
	}
	body, err := s.readSmall(w, r, maxConfiguration)
	if err != nil {
		return err
	}
	if len(body) > 0 {
		if err := checkConfiguration(body); err != nil {
			return err
		}
	}
	ctx, cancel := r.soon()
	defer cancel()
	if err := s.objects.CreateBucket(ctx, r.account(), r.bucket, public); err != nil {
		return tooMany(err, TooManyBuckets, "you have attempted to create more buckets than allowed: %d", state.MaxBucketsPerUser)
	}
	w.Header().Set("Location", "/"+r.bucket)
	return web.Empty(w, http.StatusOK)
}

// checkOwnership returns an error for an invalid x-amz-object-ownership. All three valid values
// have the same effect, because no other account can write to the bucket.
func checkOwnership(h http.Header) error {
	const header = "X-Amz-Object-Ownership"
	for _, value := range h[header] {
		switch value {
		case "", "BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter":
		default:
			return errorf(InvalidArgument, "invalid x-amz-object-ownership header: %.64q", value)
		}
	}
	return nil
}

func (s *surface) deleteBucket(w http.ResponseWriter, r *request) error {
	ctx, cancel := r.soon()
	defer cancel()
	if err := s.objects.DeleteBucket(ctx, r.account(), r.bucket); err != nil {
		return err
	}
	return web.Empty(w, http.StatusNoContent)
}

func (s *surface) headBucket(w http.ResponseWriter, r *request) error {
	ctx, cancel := r.soon()
	defer cancel()
	if _, err := s.objects.Bucket(ctx, r.account(), r.bucket); err != nil {
		return err
	}
	w.Header().Set("X-Amz-Bucket-Region", s.region)
	w.Header().Set("Content-Type", "application/xml")
	return web.Empty(w, http.StatusOK)
}

// probeLocation returns the answer to GetBucketLocation. As in Amazon S3, the element is empty
// for us-east-1.
func probeLocation(s *surface, _ *request, _ *state.Bucket) (*xmlWriter, error) {
	x := newXML()
	x.root("LocationConstraint")
	if s.region != DefaultRegion {
		x.escape(s.region)
	}
	x.end("LocationConstraint")
	return x, nil
}

// tooMany returns an *Error with the given code and text if err is state.ErrTooLarge, and err
// otherwise.
func tooMany(err error, code Code, format string, args ...any) error {
	if errors.Is(err, state.ErrTooLarge) {
		return errorf(code, format, args...)
	}
	return err
}
