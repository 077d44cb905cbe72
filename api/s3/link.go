package s3

import (
	"cmp"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/s3/sigv4"
)

// Link is a presigned link to an object.
type Link struct {
	Endpoint             string // URL of the gateway without a path
	Region               string // empty: DefaultRegion
	Bucket, Key, Version string // Version may be "": the current one
	AccessKeyID, Secret  string // of the key that signs the link
	At                   time.Time
	For                  time.Duration // validity, at most sigv4.MaxExpires
}

// URL signs the link and returns it.
func (l Link) URL() string {
	scheme, host, _ := strings.Cut(l.Endpoint, "://")
	return sigv4.Link{
		Scheme: scheme, Host: host, Path: "/" + l.Bucket + "/" + l.Key, Version: l.Version, Region: cmp.Or(l.Region, DefaultRegion),
		AccessKey: l.AccessKeyID, Secret: l.Secret, At: l.At, Expires: l.For,
	}.URL()
}
