package web

import (
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Share is a share in JSON: a grant of access to some prefixes of a bucket. The secret key and
// the token are present only in the answer to its creation.
type Share struct {
	ID        state.ShareID `json:"share_id"`
	Bucket    string        `json:"bucket"`
	Prefixes  []string      `json:"prefixes"`
	Read      bool          `json:"read"`
	Write     bool          `json:"write"`
	Delete    bool          `json:"delete"`
	Expires   string        `json:"expires_at,omitempty"`
	Name      string        `json:"name"`
	Created   string        `json:"created_at"`
	Used      string        `json:"used_at,omitempty"`
	AccessKey string        `json:"access_key,omitempty"`
	SecretKey string        `json:"secret_key,omitempty"`
	Token     string        `json:"token,omitempty"`
}

// ShareOf converts a share to its JSON form. layout is the format of its times, which are in UTC,
// for time.Format.
func ShareOf(s *accounts.Share, layout string) Share {
	text := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(layout)
	}
	b := Share{
		ID: s.ID, Bucket: s.Bucket, Prefixes: s.Prefixes, Read: s.Read, Write: s.Write, Delete: s.Delete, Name: s.Name,
		Created: text(s.Created.Time()), Used: text(s.Used), AccessKey: s.AccessKeyID, SecretKey: s.SecretAccessKey, Token: s.Token,
	}
	if s.Expires != 0 {
		b.Expires = text(s.Expires.Time())
	}
	return b
}

// ShareFields are the names of the members of a JSON body that ReadShare reads.
var ShareFields = []string{"prefixes", "read", "write", "delete", "expires_at", "name"}

// ReadShare reads the rights, the expiry and the name of a new share from a JSON body. The caller
// adds the id and the bucket. An absent member is false or empty. A member of the wrong type is a
// 400 error; the use case that creates the share checks the values.
func ReadShare(f Fields) (asked accounts.ShareRequest, err error) {
	if asked.Prefixes, _, err = f.Texts("prefixes"); err != nil {
		return asked, err
	}
	for _, right := range []struct {
		name string
		to   *bool
	}{{"read", &asked.Read}, {"write", &asked.Write}, {"delete", &asked.Delete}} {
		if *right.to, _, err = f.Bool(right.name); err != nil {
			return asked, err
		}
	}
	if asked.Name, _, err = f.Text("name"); err != nil {
		return asked, err
	}
	expires, _, err := f.Text("expires_at")
	if err != nil || expires == "" {
		return asked, err
	}
	if asked.Expires, err = time.Parse(time.RFC3339, expires); err != nil {
		return asked, BadRequest("expires_at is not a time of RFC 3339, such as 2027-01-31T12:00:00Z")
	}
	return asked, nil
}
