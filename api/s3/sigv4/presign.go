package sigv4

import (
	"crypto/sha256"
	"net/http"
	"strconv"
	"time"
)

// Link has the inputs of a presigned URL for a GET. Everybody who has the URL can use it.
type Link struct {
	Scheme, Host      string // of the gateway
	Path              string // decoded: "/", the bucket, "/" and the key
	Version           string // versionId; empty: the current version
	Region            string
	AccessKey, Secret string        // access key that signs the URL
	At                time.Time     // start of its validity
	Expires           time.Duration // length of its validity, 1 s to MaxExpires
}

// URL returns the presigned URL.
func (l Link) URL() string {
	c := &credential{
		day: l.At.UTC().Format(stampForm)[:dayLength], region: l.Region, service: service, terminator: terminator,
		names: "host", signed: []string{"host"}, stamp: l.At.UTC().Format(stampForm),
	}
	scope := c.day + "/" + c.region + "/" + c.service + "/" + c.terminator
	q := &request{scheme: SchemeQuery, query: []parameter{
		{"X-Amz-Algorithm", algorithm},
		{"X-Amz-Credential", l.AccessKey + "/" + scope},
		{"X-Amz-Date", c.stamp},
		{"X-Amz-Expires", strconv.FormatInt(int64(l.Expires/time.Second), 10)},
		{"X-Amz-SignedHeaders", c.names},
	}}
	if l.Version != "" {
		q.query = append(q.query, parameter{"versionId", l.Version})
	}
	path := string(appendEscaped(nil, l.Path, true))
	links := newChain(signingKey(l.Secret, c), c.stamp, scope)
	links.seed(sha256.Sum256(canonical(nil, &http.Request{Method: http.MethodGet, Host: l.Host}, q, c, path, unsignedPayload)))
	url := appendQuery([]byte(l.Scheme+"://"+l.Host+path+"?"), q)
	return string(append(append(url, "&X-Amz-Signature="...), links.previous[:]...))
}
