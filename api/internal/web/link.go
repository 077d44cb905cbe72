package web

import "time"

// Link is a link to an object at the object gateway.
type Link struct {
	Endpoint             string // URL of the gateway
	Bucket, Key, Version string // Version is "" for the current one
	AccessKeyID, Secret  string // of the key that signs it
	At                   time.Time
	For                  time.Duration // how long it works
}
