package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// Errors of shares. A Vault of a recipient also returns the errors of seal.Grant.Allow.
var (
	// ErrRevoked: the nodes no longer accept the credential of a share, because the owner has revoked
	// the share or its time is over.
	ErrRevoked = errors.New("the share was revoked, or its time is over")
	// ErrRecipient: only the owner of a Vault may do this.
	ErrRecipient = errors.New("only the owner of the files may do this")
	// ErrSharedFile: one file is shared for reading only, because each upload has a new key.
	ErrSharedFile = errors.New("a single file is shared for reading only: share its folder")
	// ErrFileAndFolder: the name to be shared is that of a file and of a folder.
	ErrFileAndFolder = errors.New("there is a file and a folder of this name: the name of a folder ends in /")
)

// Prefixes of the storage keys of a Vault: of its files, and of the indexes of its folders.
const (
	filePrefix  = "e/"
	indexPrefix = "x/"
)

// maxShares is the largest answer about shares that the client reads, in bytes.
const maxShares = 16 << 20

// ShareOptions describe a share that is to be made.
type ShareOptions struct {
	// To is the recipient; nil makes a link that anybody who has it can open.
	To *seal.PublicIdentity

	Permissions seal.Permissions
	Expires     time.Time // zero means never

	// Name is a text by which the owner recognizes the share. The nodes can read it.
	Name string

	// Page is the URL of the page that opens the link; "" makes a link that only programs can open.
	Page string

	// Endpoints are the nodes in the link; nil means those of the client.
	Endpoints []string
}

// Share is a share in the registry of a cluster. The registry has neither keys nor names of files.
type Share struct {
	ID          string
	Bucket      string
	Prefixes    []string // of the storage keys that the credential of the share reaches
	Permissions seal.Permissions
	Created     time.Time
	Expires     time.Time // zero if it does not expire
	Name        string
}

// shareJSON is the JSON form of a share in the registry.
type shareJSON struct {
	ID       string     `json:"share_id,omitempty"`
	Bucket   string     `json:"bucket,omitempty"`
	Prefixes []string   `json:"prefixes"`
	Read     bool       `json:"read"`
	Write    bool       `json:"write"`
	Delete   bool       `json:"delete"`
	Expires  *time.Time `json:"expires_at,omitempty"`
	Name     string     `json:"name,omitempty"`
	Created  *time.Time `json:"created_at,omitempty"`
	Token    string     `json:"token,omitempty"`
}

// Share shares a folder or a file, and returns the link for the recipient. The cluster gives the
// recipient a credential for the ciphertext, which is in the link. The link is a secret. A name that
// ends in "/" is a folder, and "" is the whole bucket. The error is ErrNotFound if there is no such
// name, ErrFileAndFolder, ErrSharedFile, ErrRecipient, an error of CheckName, or an error of
// seal.Identity.NewToken.
func (v *Vault) Share(ctx context.Context, name string, o ShareOptions) (*seal.Link, error) {
	if v.identity == nil {
		return nil, ErrRecipient
	}
	what, prefixes, err := v.toShare(ctx, name)
	if err != nil {
		return nil, err
	}
	what.Permissions, what.Expires = o.Permissions, o.Expires
	if what.Object != nil && o.Permissions != seal.ReadOnly() {
		return nil, ErrSharedFile
	}
	link, err := v.newLink(what, o)
	if err != nil {
		return nil, err
	}
	if link.Endpoints = o.Endpoints; o.Endpoints == nil {
		link.Endpoints = v.client.Endpoints()
	}
	link.Access, err = v.client.register(ctx, v.bucket, link.Token, shareJSON{
		Prefixes: prefixes, Read: o.Permissions.Read, Write: o.Permissions.Write, Delete: o.Permissions.Delete, Name: o.Name,
	})
	return link, err
}

func (v *Vault) newLink(what seal.Share, o ShareOptions) (*seal.Link, error) {
	if o.To == nil {
		return v.identity.NewLink(o.Page, "", what)
	}
	token, err := v.identity.NewToken(*o.To, what)
	return &seal.Link{Page: o.Page, Token: token}, err
}

// toShare describes the share of a folder or file, and returns the prefixes of its storage keys.
func (v *Vault) toShare(ctx context.Context, name string) (what seal.Share, prefixes []string, err error) {
	p := absolute(strings.TrimSuffix(name, "/"))
	what = seal.Share{Bucket: v.bucket, PathScope: p}
	if p == "/" {
		return what, []string{filePrefix, indexPrefix}, nil
	}
	if err := v.CheckName(strings.TrimPrefix(p, "/")); err != nil {
		return what, nil, err
	}
	above, base := split(p)
	x, err := v.index(above)
	if err != nil {
		return what, nil, err
	}
	_, notFolder := x.Lookup(ctx, base+"/")
	var file seal.Entry
	notFile := seal.ErrNotFound
	if !strings.HasSuffix(name, "/") {
		file, notFile = x.Lookup(ctx, base)
	}
	for _, err := range []error{notFolder, notFile} {
		if err != nil && !errors.Is(err, seal.ErrNotFound) {
			return what, nil, err
		}
	}
	switch {
	case notFolder == nil && notFile == nil:
		return what, nil, fmt.Errorf("%s: %w", name, ErrFileAndFolder)
	case notFolder == nil:
		return what, []string{filePrefix, indexPrefix}, nil
	case notFile != nil:
		return what, nil, fmt.Errorf("%s: %w", name, v.missing(ctx, ErrNotFound))
	}
	_, content, err := v.open(ctx, strings.TrimPrefix(p, "/"), file.StorageKey, DownloadOptions{})
	if err != nil {
		return what, nil, err
	}
	key := content.DataKey()
	what.Object, what.StorageKey = &key, file.StorageKey
	return what, []string{file.StorageKey}, nil
}

// Endpoints returns the URLs of the nodes that the client knows.
func (c *Client) Endpoints() (all []string) {
	for _, n := range c.nodes.list {
		all = append(all, n.endpoint)
	}
	return all
}

// register adds a share to the registry, and returns the credential of the recipient.
func (c *Client) register(ctx context.Context, bucket string, t *seal.Token, s shareJSON) (access string, err error) {
	if !t.Expires.IsZero() {
		s.Expires = &t.Expires
	}
	body, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	var made shareJSON
	op := operation{verb: "share", bucket: bucket}
	err = c.askShares(ctx, op, http.MethodPut, url.Values{"share": {t.ShareID}}, body, &made)
	if err == nil && made.Token == "" {
		err = fmt.Errorf("%s: the cluster returned no credential", op)
	}
	return made.Token, err
}

// Shares returns the shares of a bucket that are in the registry, ordered by id. A revoked share is
// not in the registry. The sequence ends after its first error.
func (c *Client) Shares(ctx context.Context, bucket string) iter.Seq2[Share, error] {
	return func(yield func(Share, error) bool) {
		for after := ""; ; {
			query := url.Values{"shares": {""}}
			if after != "" {
				query.Set("after", after)
			}
			var page struct {
				Shares []shareJSON `json:"shares"`
				Next   string      `json:"next"`
			}
			if err := c.askShares(ctx, operation{verb: "list shares of", bucket: bucket}, http.MethodGet, query, nil, &page); err != nil {
				yield(Share{}, err)
				return
			}
			for i := range page.Shares {
				if !yield(page.Shares[i].share(), nil) {
					return
				}
			}
			if page.Next <= after { // also "" after the last page
				return
			}
			after = page.Next
		}
	}
}

func (s *shareJSON) share() Share {
	out := Share{ID: s.ID, Bucket: s.Bucket, Prefixes: s.Prefixes, Permissions: seal.Permissions{Read: s.Read, Write: s.Write, Delete: s.Delete}, Name: s.Name}
	if s.Created != nil {
		out.Created = *s.Created
	}
	if s.Expires != nil {
		out.Expires = *s.Expires
	}
	return out
}

// RevokeShare ends a share. When RevokeShare returns nil, no node accepts the credential of the
// share. A recipient keeps the ciphertext and the keys that the recipient has. The error is
// ErrNotFound if the registry does not have the share.
func (c *Client) RevokeShare(ctx context.Context, bucket, id string) error {
	return c.askShares(ctx, operation{verb: "revoke share of", bucket: bucket}, http.MethodDelete, url.Values{"share": {id}}, nil, nil)
}

// askShares sends a request to the registry, and decodes the JSON of the answer into out, unless out
// is nil.
func (c *Client) askShares(ctx context.Context, op operation, method string, query url.Values, body []byte, out any) error {
	_, err := c.do(ctx, op, func(ctx context.Context, n *node) error {
		resp, err := n.request(ctx, op, method, query, nil, body)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }() // opened only for reading
		if out == nil {
			return nil
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxShares))
		if err != nil {
			return &bodyError{err}
		}
		if err := json.Unmarshal(text, out); err != nil {
			return &Error{Op: op.String(), Endpoint: n.endpoint, Status: resp.StatusCode, Message: "the node has no registry of shares"}
		}
		return nil
	})
	return err
}
