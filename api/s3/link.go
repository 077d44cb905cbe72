package s3

import (
	"cmp"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/s3/sigv4"
)

// Link has the inputs of a presigned URL of an object, signed with version 4.
type Link struct {
	Endpoint             string // URL of the gateway without a path
	Region               string // empty means DefaultRegion
	Bucket, Key, Version string // Version "" means the current version
	AccessKeyID, Secret  string // access key that signs the URL
	At                   time.Time
	For                  time.Duration // validity from At on, at most sigv4.MaxExpires
}

// URL returns the presigned URL.
func (l Link) URL() string {
	scheme, host, _ := strings.Cut(l.Endpoint, "://")
	return sigv4.Link{
		Scheme: scheme, Host: host, Path: "/" + l.Bucket + "/" + l.Key, Version: l.Version, Region: cmp.Or(l.Region, DefaultRegion),
		AccessKey: l.AccessKeyID, Secret: l.Secret, At: l.At, Expires: l.For,
	}.URL()
}
