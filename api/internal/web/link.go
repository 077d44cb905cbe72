package web

import "time"

// Link has the inputs of a presigned URL of an object at the S3 gateway.
type Link struct {
	Endpoint             string // URL of the gateway
	Bucket, Key, Version string // Version is "" for the current version
	AccessKeyID, Secret  string // access key that signs the URL
	At                   time.Time
	For                  time.Duration // validity from At on
}
