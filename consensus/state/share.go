package state

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// ShareLevel is the lowest feature level with shares.
const ShareLevel FeatureLevel = 8

// Limits of shares.
const (
	MaxShares        = 1000 // shares of an account; small enough that closing the account or deleting a bucket ends all in one entry
	MaxSharePrefixes = 8    // prefixes of a share
	ShareIDLen       = 32   // hexadecimal digits of the id of a share: 128 bits, as in a share token
)

// ShareID is the id of a share. The owner chooses it, and it is unique in its bucket.
type ShareID string

// Share gives the holder of its key access to a part of one bucket through the object gateway.
// Its key is not an API key and permits nothing else.
type Share struct {
	ID      ShareID
	Account AccountID
	Bucket  string
	Born    Incarnation // the share ends when this bucket is deleted
	Key     KeyID       // id of the token and of the key pair
	Name    string
	// Prefixes select the object keys that the share covers. A prefix that ends in "/" covers all
	// keys that begin with it; any other covers only the key that is equal to it.
	Prefixes []string
	Read     bool // read and list objects
	Write    bool // create and replace objects, also by uploads
	Delete   bool // delete objects
	Created  Millis
	Expires  Millis // zero means never
}

// Expired returns whether the share has expired at the time now.
func (v *Share) Expired(now Millis) bool { return v.Expires != 0 && v.Expires <= now }

// Covers returns whether Prefixes cover an object key. It compares bytes.
func (v *Share) Covers(objectKey string) bool {
	return slices.ContainsFunc(v.Prefixes, func(p string) bool {
		return objectKey == p || strings.HasSuffix(p, "/") && strings.HasPrefix(objectKey, p)
	})
}

// CoversList returns whether Prefixes cover every key that begins with prefix.
func (v *Share) CoversList(prefix string) bool {
	return slices.ContainsFunc(v.Prefixes, func(p string) bool {
		return strings.HasSuffix(p, "/") && strings.HasPrefix(prefix, p)
	})
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *Share) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.ID, ShareIDLen)
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	codec.String(c, &v.Key, MaxIDLen)
	codec.String(c, &v.Name, maxNameBytes)
	codec.Strings(c, &v.Prefixes, MaxSharePrefixes, MaxKeyBytes)
	codec.Bool(c, &v.Read)
	codec.Bool(c, &v.Write)
	codec.Bool(c, &v.Delete)
	codec.Int(c, &v.Created)
	codec.Int(c, &v.Expires)
}

// Check returns ErrInvalid if a field of the share is out of bounds.
func (v *Share) Check() error {
	switch {
	case !ValidShareID(v.ID):
		return Errorf(CodeInvalid, "the id of a share has %d hexadecimal digits in lower case", ShareIDLen)
	case v.Key == "" || len(v.Key) > MaxIDLen || v.Created <= 0 || v.Created > maxCreated:
		return Errorf(CodeInvalid, "share record out of bounds")
	case !utf8.ValidString(v.Name) || utf8.RuneCountInString(v.Name) > MaxNameRunes:
		return Errorf(CodeInvalid, "the name of a share is UTF-8 and has at most %d characters", MaxNameRunes)
	case !v.Read && !v.Write && !v.Delete:
		return Errorf(CodeInvalid, "a share permits at least one of read, write and delete")
	case len(v.Prefixes) == 0 || len(v.Prefixes) > MaxSharePrefixes:
		return Errorf(CodeInvalid, "a share has from 1 to %d prefixes", MaxSharePrefixes)
	case v.Expires != 0 && v.Expires <= v.Created || v.Expires > maxCreated:
		return Errorf(CodeInvalid, "a share expires after it was created")
	}
	for i, p := range v.Prefixes {
		if p == "" || len(p) > MaxKeyBytes || !utf8.ValidString(p) || strings.IndexByte(p, 0) >= 0 {
			return Errorf(CodeInvalid, "a prefix of a share is UTF-8 of 1 to %d bytes without U+0000", MaxKeyBytes)
		}
		if i > 0 && v.Prefixes[i-1] >= p {
			return Errorf(CodeInvalid, "the prefixes of a share are sorted, and none is there twice")
		}
	}
	return nil
}

// ValidShareID returns whether an id has the form of a share's id.
func ValidShareID(id ShareID) bool {
	return len(id) == ShareIDLen && !strings.ContainsFunc(string(id), func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'f')
	})
}

// same returns whether two shares have the same name, prefixes, permissions and expiry.
func (v *Share) same(o *Share) bool {
	return v.Name == o.Name && slices.Equal(v.Prefixes, o.Prefixes) && v.Read == o.Read && v.Write == o.Write && v.Delete == o.Delete &&
		v.Expires == o.Expires
}

func sharesOf(a AccountID) key { return part(table(tableShare), a) }

func shareKey(a AccountID, born Incarnation, id ShareID) key {
	return append(sharesOf(a).u64(uint64(born)), id...)
}

func (v *Share) key() key { return shareKey(v.Account, v.Born, v.ID) }

func shareByKey(id KeyID) key { return part(table(tableShareKey), id) }

// CreateShare adds a share to a bucket. If an equal share with this id exists, nothing changes.
// If the account has MaxShares shares, Apply first removes expired ones. The command needs
// feature level 8.
//
// Errors: ErrInvalid; ErrNoBucket; ErrExists if the id belongs to a different share; ErrTooLarge
// if no share can be removed.
type CreateShare struct {
	Share Share
	// Expired is the time by which a share must have expired to be removed, see CreateKey.
	Expired Millis
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CreateShare) Code(c *codec.Coder) {
	v.Share.Code(c)
	codec.Int(c, &v.Expired)
}

func (v *CreateShare) apply(tx Tx, e *entry) (Result, error) {
	s := v.Share
	if err := s.Check(); err != nil {
		return Result{}, err
	}
	if _, err := openBucket(tx, s.Account, s.Bucket, s.Born); err != nil {
		return Result{}, err
	}
	if old, err := get[Share](tx, s.key()); err != nil {
		return Result{}, err
	} else if old != nil && old.same(&s) {
		return Result{}, nil
	} else if old != nil {
		return Result{}, Errorf(CodeExists, "the bucket has a share %s that grants something else", s.ID)
	}
	for _, taken := range []key{apiKeyKey(s.Key), shareByKey(s.Key)} {
		if there, err := has(tx, taken); err != nil {
			return Result{}, err
		} else if there {
			return Result{}, Errorf(CodeConflict, "a key %s exists already", s.Key)
		}
	}
	if err := roomForShare(tx, s.Account, v.Expired, e); err != nil {
		return Result{}, err
	}
	if err := signWith(tx, s.Key); err != nil {
		return Result{}, err
	}
	if err := tx.Set(shareByKey(s.Key), s.key()); err != nil {
		return Result{}, err
	}
	return Result{}, put(tx, s.key(), &s)
}

// roomForShare ensures that an account has fewer than MaxShares shares. If necessary, it removes
// shares that had expired at the time by; if none had, it returns ErrTooLarge.
func roomForShare(tx Tx, a AccountID, by Millis, e *entry) error {
	all, err := sharesIn(tx, sharesOf(a))
	if err != nil || len(all) < MaxShares {
		return err
	}
	cleared := 0
	for i := range all {
		if cleared == maxClearedKeys {
			break
		}
		if !all[i].Expired(by) {
			continue
		}
		if err := removeShare(tx, &all[i], e); err != nil {
			return err
		}
		cleared++
	}
	if cleared == 0 {
		return Errorf(CodeTooLarge, "the account has its most shares, %d", MaxShares)
	}
	return nil
}

// sharesIn returns the shares whose rows begin with a prefix.
func sharesIn(r Reader, prefix key) ([]Share, error) { return scanAll[Share](r, prefix) }

// removeShare removes a share and all records about it.
func removeShare(tx Tx, s *Share, e *entry) error {
	e.fx.Keys = true
	if err := signedNoMore(tx, s.Key); err != nil {
		return err
	}
	for _, gone := range []key{s.key(), shareByKey(s.Key), useKey(useOfKey, string(s.Key))} {
		if err := tx.Delete(gone); err != nil {
			return err
		}
	}
	return nil
}

// removeShares removes the shares whose rows begin with a prefix, MaxShares at most.
func removeShares(tx Tx, prefix key, e *entry) error {
	all, err := sharesIn(tx, prefix)
	if err != nil {
		return err
	}
	for i := range all {
		if err := removeShare(tx, &all[i], e); err != nil {
			return err
		}
	}
	return nil
}

// RevokeShare removes a share. The command needs feature level 8.
//
// Errors: ErrNoBucket; ErrNotFound.
type RevokeShare struct {
	Account AccountID
	Bucket  string
	Born    Incarnation
	ID      ShareID
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *RevokeShare) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	codec.String(c, &v.ID, ShareIDLen)
}

func (v *RevokeShare) apply(tx Tx, e *entry) (Result, error) {
	if _, err := openBucket(tx, v.Account, v.Bucket, v.Born); err != nil {
		return Result{}, err
	}
	s, err := get[Share](tx, shareKey(v.Account, v.Born, v.ID))
	if err != nil {
		return Result{}, err
	}
	if s == nil {
		return Result{}, errNoShare
	}
	return Result{}, removeShare(tx, s, e)
}

var errNoShare = Errorf(CodeNotFound, "no such share")

// findShare returns the share with a key, or nil if there is none.
func findShare(r Reader, id KeyID) (*Share, error) {
	if id == "" || len(id) > MaxIDLen {
		return nil, nil
	}
	row, ok, err := r.Get(shareByKey(id))
	if err != nil || !ok {
		return nil, err
	}
	s, err := get[Share](r, row)
	if err == nil && s == nil {
		err = fmt.Errorf("state: the share of key %s is missing", id)
	}
	return s, err
}

// ShareByKey returns the share with a key, or ErrNotFound. The caller must check whether the
// share has expired, because the state has no clock.
func (v View) ShareByKey(id KeyID) (Share, error) {
	s, err := findShare(v.r, id)
	if err != nil {
		return Share{}, err
	}
	if s == nil {
		return Share{}, errNoShare
	}
	return *s, nil
}

// Share returns a share of a bucket, or ErrNotFound.
func (v View) Share(b *Bucket, id ShareID) (Share, error) {
	s, err := get[Share](v.r, shareKey(b.Account, b.Born, id))
	if err != nil {
		return Share{}, err
	}
	if s == nil {
		return Share{}, errNoShare
	}
	return *s, nil
}

// SharesQuery selects a page of an account's shares, ordered by the creation of their bucket and
// then by id.
type SharesQuery struct {
	Account AccountID
	Bucket  *Bucket // return only shares of this bucket; nil means all buckets
	After   SharePlace
	Limit   int // at most MaxListLimit
}

// SharePlace is the place of a share in the order of SharesQuery. The zero value is before all.
type SharePlace struct {
	Born Incarnation
	ID   ShareID
}

// Place returns the place of the share.
func (v *Share) Place() SharePlace { return SharePlace{v.Born, v.ID} }

// Shares returns a page of shares, and whether there are more.
func (v View) Shares(q SharesQuery) (all []Share, more bool, err error) {
	prefix, after := sharesOf(q.Account), q.After
	if q.Bucket != nil {
		prefix, after.Born = prefix.u64(uint64(q.Bucket.Born)), q.Bucket.Born
	}
	from := shareKey(q.Account, after.Born, after.ID)
	if after.ID != "" {
		from = append(from, 0)
	}
	return scanPage[Share](v.r, from, prefix.end(), min(q.Limit, MaxListLimit))
}

// AllShares returns the shares of all accounts.
func (v View) AllShares() ([]Share, error) { return sharesIn(v.r, table(tableShare)) }

// permits returns whether the key of the share may request a change. Only the kinds of changes
// that this function lists are permitted, so that a new command is rejected by default.
func (v *Share) permits(change Command) bool {
	covers := func(bucket string, born Incarnation, objectKeys ...string) bool {
		return bucket == v.Bucket && born == v.Born && !slices.ContainsFunc(objectKeys, func(k string) bool { return !v.Covers(k) })
	}
	switch c := change.(type) {
	case *PutObject:
		return v.Write && covers(c.Bucket, c.Born, c.Object.Key)
	case *CopyObject:
		return v.Write && covers(c.Bucket, c.Born, c.Object.Key) && v.Read && covers(c.SourceBucket, c.SourceBorn, c.SourceKey)
	case *CreateUpload:
		return v.Write && covers(c.Bucket, c.Born, c.Upload.Key)
	case *PutPart:
		return v.Write && covers(c.Bucket, c.Born, c.Key)
	case *CopyPart:
		return v.Write && covers(c.Bucket, c.Born, c.Key) && v.Read && covers(c.SourceBucket, c.SourceBorn, c.SourceKey)
	case *CompleteUpload:
		return v.Write && covers(c.Bucket, c.Born, c.Object.Key)
	case *AbortUpload:
		return v.Write && covers(c.Bucket, c.Born, c.Key)
	case *DeleteObjects:
		return v.Delete && covers(c.Bucket, c.Born, c.Keys...) &&
			!slices.ContainsFunc(c.IDs, func(id VersionID) bool { return id != "" }) // a share deletes no version permanently
	}
	return false
}
