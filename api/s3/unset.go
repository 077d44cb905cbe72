package s3

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// unset returns the operations for bucket configurations that the gateway does not support. Tools
// read them, and continue if the answer is that of an Amazon S3 bucket without the configuration:
// an empty document, or a 404 with its own code. Setting one is a NotImplemented error.
func (s *surface) unset() []operation {
	const (
		bucket = levelBucket

		get = http.MethodGet
		del = http.MethodDelete
	)
	return []operation{
		{"GetBucketLifecycleConfiguration", bucket, get, "lifecycle", false, needRead, s.probe(nothing(NoSuchLifecycleConfiguration, "the lifecycle configuration does not exist"))},
		{"DeleteBucketLifecycle", bucket, del, "lifecycle", false, needWrite, s.deleteNothing},
		{"GetBucketPolicy", bucket, get, "policy", false, needRead, s.probe(nothing(NoSuchBucketPolicy, "the bucket policy does not exist"))},
		{"DeleteBucketPolicy", bucket, del, "policy", false, needWrite, s.deleteNothing},
		{"GetObjectLockConfiguration", bucket, get, "object-lock", false, needRead, s.probe(nothing(ObjectLockConfigurationNotFoundError, "object lock configuration does not exist for this bucket"))},
		{"GetBucketEncryption", bucket, get, "encryption", false, needRead, s.probe(nothing(ServerSideEncryptionConfigurationNotFoundError, "the server side encryption configuration was not found"))},
		{"DeleteBucketEncryption", bucket, del, "encryption", false, needWrite, s.deleteNothing},
		{"GetBucketOwnershipControls", bucket, get, "ownershipControls", false, needRead, s.probe(nothing(OwnershipControlsNotFoundError, "the bucket ownership controls were not found"))},
		{"DeleteBucketOwnershipControls", bucket, del, "ownershipControls", false, needWrite, s.deleteNothing},
		{"GetPublicAccessBlock", bucket, get, "publicAccessBlock", false, needRead, s.probe(nothing(NoSuchPublicAccessBlockConfiguration, "the public access block configuration was not found"))},
		{"DeletePublicAccessBlock", bucket, del, "publicAccessBlock", false, needWrite, s.deleteNothing},
		{"GetBucketWebsite", bucket, get, "website", false, needRead, s.probe(nothing(NoSuchWebsiteConfiguration, "the specified bucket does not have a website configuration"))},
		{"DeleteBucketWebsite", bucket, del, "website", false, needWrite, s.deleteNothing},
		{"GetBucketReplication", bucket, get, "replication", false, needRead, s.probe(nothing(ReplicationConfigurationNotFoundError, "the replication configuration was not found"))},
		{"DeleteBucketReplication", bucket, del, "replication", false, needWrite, s.deleteNothing},
		{"GetBucketAccelerateConfiguration", bucket, get, "accelerate", false, needRead, s.probe(empty("AccelerateConfiguration"))},
		{"GetBucketLogging", bucket, get, "logging", false, needRead, s.probe(empty("BucketLoggingStatus"))},
		{"GetBucketNotificationConfiguration", bucket, get, "notification", false, needRead, s.probe(empty("NotificationConfiguration"))},
		{"GetBucketRequestPayment", bucket, get, "requestPayment", false, needRead, s.probe(probePayer)},
		{"GetBucketMetadataConfiguration", bucket, get, "metadataConfiguration", false, needRead, s.probe(nothing(MetadataConfigurationNotFound, "the metadata configuration does not exist"))},
		{"DeleteBucketMetadataConfiguration", bucket, del, "metadataConfiguration", false, needWrite, s.deleteNothing},
		{"GetBucketMetadataTableConfiguration", bucket, get, "metadataTable", false, needRead, s.probe(nothing(MetadataConfigurationNotFound, "the metadata table configuration does not exist"))},
		{"DeleteBucketMetadataTableConfiguration", bucket, del, "metadataTable", false, needWrite, s.deleteNothing},
		{"GetBucketAbac", bucket, get, "abac", false, needRead, s.probe(probeAbac)},
		// With an id the request reads one configuration, without one the list.
		{"ListBucketAnalyticsConfigurations", bucket, get, "analytics", false, needRead, s.probe(noneOf("ListBucketAnalyticsConfigurationResult"))},
		{"ListBucketIntelligentTieringConfigurations", bucket, get, "intelligent-tiering", false, needRead, s.probe(noneOf("ListBucketIntelligentTieringConfigurationsOutput"))},
		{"ListBucketInventoryConfigurations", bucket, get, "inventory", false, needRead, s.probe(noneOf("ListInventoryConfigurationsResult"))},
		{"ListBucketMetricsConfigurations", bucket, get, "metrics", false, needRead, s.probe(noneOf("ListMetricsConfigurationsResult"))},
	}
}

// probing returns the document that answers a request for a configuration of the bucket.
type probing = func(*surface, *request, *state.Bucket) (*xmlWriter, error)

// probe returns a handler that answers with the document of answer for the caller's bucket. A
// missing bucket is an error.
func (s *surface) probe(answer probing) func(http.ResponseWriter, *request) error {
	return func(w http.ResponseWriter, r *request) error {
		ctx, cancel := r.soon()
		defer cancel()
		b, err := s.objects.Bucket(ctx, r.account(), r.bucket)
		if err != nil {
			return err
		}
		x, err := answer(s, r, &b)
		if err != nil {
			return err
		}
		return x.send(w, http.StatusOK)
	}
}

// nothing returns a probing that fails with the given code and message: the bucket has no such
// configuration.
func nothing(code Code, message string) probing {
	return func(*surface, *request, *state.Bucket) (*xmlWriter, error) { return nil, errorf(code, "%s", message) }
}

// empty returns a probing whose document has only the empty element root: the bucket has no such
// configuration.
func empty(root string) probing {
	return func(*surface, *request, *state.Bucket) (*xmlWriter, error) {
		x := newXML()
		x.root(root)
		x.end(root)
		return x, nil
	}
}

// noneOf returns a probing for configurations of which a bucket can have several. Its document
// root is an empty list. With the parameter id, which asks for one configuration, it is an error.
func noneOf(root string) probing {
	return func(_ *surface, r *request, _ *state.Bucket) (*xmlWriter, error) {
		if r.query.has("id") {
			return nil, errorf(NoSuchConfiguration, "the specified configuration does not exist")
		}
		x := newXML()
		x.root(root)
		x.truth("IsTruncated", false)
		x.end(root)
		return x, nil
	}
}

// probePayer returns the answer to GetBucketRequestPayment: the owner of the bucket pays.
func probePayer(*surface, *request, *state.Bucket) (*xmlWriter, error) {
	x := newXML()
	x.root("RequestPaymentConfiguration")
	x.text("Payer", "BucketOwner")
	x.end("RequestPaymentConfiguration")
	return x, nil
}

// probeAbac returns the answer to GetBucketAbac: access control by tags is disabled.
func probeAbac(*surface, *request, *state.Bucket) (*xmlWriter, error) {
	x := newXML()
	x.root("AbacStatus")
	x.text("Status", "Disabled")
	x.end("AbacStatus")
	return x, nil
}

// deleteNothing answers the deletion of a configuration that no bucket has. It succeeds if the
// bucket exists.
func (s *surface) deleteNothing(w http.ResponseWriter, r *request) error {
	ctx, cancel := r.soon()
	defer cancel()
	if _, err := s.objects.Bucket(ctx, r.account(), r.bucket); err != nil {
		return err
	}
	return web.Empty(w, http.StatusNoContent)
}
