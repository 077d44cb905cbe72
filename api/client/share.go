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
	// the share or it has expired.
	ErrRevoked = errors.New("the share was revoked, or its time is over")
	// ErrRecipient: a recipient called a method that only the owner of the Vault may call.
	ErrRecipient = errors.New("only the owner of the files may do this")
	// ErrSharedFile: a share of a single file permits only reading, because each upload has a new data
	// key, which the recipient would not have.
	ErrSharedFile = errors.New("a single file is shared for reading only: share its folder")
	// ErrFileAndFolder: both a file and a folder have the name to be shared.
	ErrFileAndFolder = errors.New("there is a file and a folder of this name: the name of a folder ends in /")
)

// Prefixes of the storage keys of a Vault: of its files, and of the indexes of its folders.
const (
	filePrefix  = "e/"
	indexPrefix = "x/"
)

// maxShares is the maximum size of an answer with shares that the client reads, in bytes.
const maxShares = 16 << 20

// ShareOptions describe a share that Vault.Share creates.
type ShareOptions struct {
	// To is the recipient. nil means everybody who has the link.
	To *seal.PublicIdentity

	Permissions seal.Permissions
	Expires     time.Time // zero means never

	// Name is a label for the owner's list of shares. The nodes can read it.
	Name string

	// Page is the URL of the web page that opens the link. With "" only programs can open the link.
	Page string

	// Endpoints are the URLs of nodes in the link. nil means those of the client.
	Endpoints []string
}

// Share is a share as the cluster stores it, without keys and without names of files.
type Share struct {
	ID          string
	Bucket      string
	Prefixes    []string // prefixes of the storage keys that the credential of the share can access
	Permissions seal.Permissions
	Created     time.Time
	Expires     time.Time // zero if it does not expire
	Name        string
}

// shareJSON is the JSON form of a share in requests and answers of the cluster.
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

// Share shares a folder or a file, and returns the link for the recipient. The link contains a
// credential for the ciphertext, which the cluster creates, so treat the link as a secret. A name
// that ends in "/" is a folder; "" is the whole bucket. Errors: ErrNotFound for an unknown name,
// ErrFileAndFolder, ErrSharedFile, ErrRecipient, and those of CheckName and
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

// toShare returns the description of a share of a folder or file for package seal, and the
// prefixes of the storage keys that the credential must cover.
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

// Endpoints returns the URLs of the nodes that the client uses.
func (c *Client) Endpoints() (all []string) {
	for _, n := range c.nodes.list {
		all = append(all, n.endpoint)
	}
	return all
}

// register creates the share s in the cluster, and returns the credential of the recipient. t is
// the token of the share.
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

// Shares returns the shares of a bucket that were not revoked, ordered by id. The sequence ends
// after its first error.
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

// RevokeShare revokes a share. When it returns nil, no node accepts the credential of the share.
// It cannot take back ciphertext and keys that the recipient has copied. The error is ErrNotFound
// if there is no such share.
func (c *Client) RevokeShare(ctx context.Context, bucket, id string) error {
	return c.askShares(ctx, operation{verb: "revoke share of", bucket: bucket}, http.MethodDelete, url.Values{"share": {id}}, nil, nil)
}

// askShares sends a request about shares, and decodes the JSON answer into out unless that is
// nil.
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
