package state

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// GraceLevel is the lowest feature level at which content of accounts without credits is deleted
// after a grace period, and at which requests can have a price.
const GraceLevel FeatureLevel = 10

// Limits for the deletion of content of dry accounts; see EndContent.
const (
	// MaxEnded is the largest number of pins, versions and uploads that one EndContent deletes.
	MaxEnded = 256
	// MaxGrace is the longest time for which a dry account can keep its content.
	MaxGrace = 3660 * dayMillis
	// An account counts as over its allowance only above a tolerance: a 1024th (1/slackPart) of
	// the allowance plus slackBytes. A put is checked by the bytes of its file, but its DAG has
	// slightly more bytes (see linking.afford). Without the tolerance, a user without credits
	// could lose a file that was accepted.
	slackPart, slackBytes = 1024, 4096
)

// over returns whether an account stores more than its allowance plus the tolerance.
func (v *Quota) over() bool {
	return v.Used() > addBounded(v.Allowance, v.Allowance/slackPart+slackBytes)
}

func dryKey(a AccountID) key { return part(table(tableDry), a) }

// noteDry is called when an account has too few credits for a charge at the time now. It marks
// the account as dry if the account is over its allowance, and otherwise removes the mark. An
// account that never had credits is never dry.
func noteDry(tx Tx, a AccountID, q *Quota, now Millis) error {
	if q.Postings == 0 {
		return nil
	}
	dry, err := has(tx, dryKey(a))
	if err != nil || dry == q.over() {
		return err
	}
	if dry {
		return tx.Delete(dryKey(a))
	}
	if open, err := has(tx, accountKey(a)); err != nil || !open {
		return err
	}
	return tx.Set(dryKey(a), binary.BigEndian.AppendUint64(nil, uint64(now)))
}

// notDry removes the mark of a dry account if the account has credits, or stores no more than its
// allowance.
func notDry(tx Tx, a AccountID, q *Quota) error {
	if q.Credits == 0 && q.Used() > q.Allowance {
		return nil
	}
	if dry, err := has(tx, dryKey(a)); err != nil || !dry {
		return err
	}
	return tx.Delete(dryKey(a))
}

// Ending names a pin, a version or an upload that is to be deleted because its account is dry.
type Ending struct {
	Created Millis    // creation time, which must match that of the named content
	Pin     RequestID // set for a pin; otherwise empty

	Bucket  string
	Born    Incarnation
	Key     string
	Version VersionID // set for a version of Key; otherwise empty
	Upload  UploadID  // set for an upload to Key; otherwise empty
}

// Code encodes or decodes the Ending as a part of a command.
func (v *Ending) Code(c *codec.Coder) {
	codec.Int(c, &v.Created)
	codec.String(c, &v.Pin, MaxIDLen)
	codec.String(c, &v.Bucket, maxBucketName)
	codec.Uint(c, &v.Born)
	codec.String(c, &v.Key, MaxKeyBytes)
	codec.String(c, &v.Version, MaxIDLen)
	codec.String(c, &v.Upload, MaxIDLen)
}

// EndContent deletes content of a dry account. An account is dry if it had too few credits for a
// charge and stores more than its allowance. The command deletes the Items in their order,
// permanently, until the account stores no more than its allowance; the proposer lists the newest
// content first. It skips items that no longer exist or have another creation time. It stops
// while parts of an ended upload, or records of a deleted bucket, are still being removed,
// because their removal may be enough. It changes nothing if the account is not dry, has been dry
// for less than Grace, or is closed. The command needs feature level GraceLevel.
//
// Errors: ErrInvalid.
type EndContent struct {
	Account AccountID
	Now     Millis // time that most members' clocks have reached
	Grace   Millis // time for which an account keeps its content after it has become dry
	Items   []Ending
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *EndContent) Code(c *codec.Coder) {
	codec.String(c, &v.Account, MaxIDLen)
	codec.Int(c, &v.Now)
	codec.Int(c, &v.Grace)
	codec.List(c, &v.Items, MaxEnded, func(c *codec.Coder, i *Ending) { i.Code(c) })
}

func (v *EndContent) apply(tx Tx, e *entry) (Result, error) {
	if v.Now < 0 || v.Grace < 0 || v.Grace > MaxGrace || len(v.Items) > MaxEnded {
		return Result{}, Errorf(CodeInvalid, "a time or a grace that is out of bounds")
	}
	if err := needsLevel(tx, GraceLevel, "content of dry accounts ends from feature level %d on"); err != nil {
		return Result{}, err
	}
	if end, dry, err := endOf(tx, v.Account, v.Grace); err != nil || !dry || end > v.Now {
		return Result{}, err
	}
	if open, err := has(tx, accountKey(v.Account)); err != nil || !open {
		return Result{}, err
	}
	e.at = v.Now
	var t endings
	return Result{}, gathered(tx, func(tx Tx) error {
		before, err := quotaOf(tx, v.Account)
		if err != nil {
			return err
		}
		q := before
		for i := range v.Items {
			if more, err := endsMore(tx, v.Account, q); err != nil {
				return err
			} else if !more || e.settle <= 0 {
				break
			}
			if err := v.Items[i].end(tx, v.Account, &t, e); err != nil {
				return err
			}
			if q, err = quotaOf(tx, v.Account); err != nil {
				return err
			}
		}
		if t.all() == 0 {
			return nil
		}
		e.did = fmt.Sprintf("no credits: content ended, %s, %d bytes", &t, before.Used()-min(before.Used(), q.Used()))
		e.fx.Accounts = append(e.fx.Accounts, AccountChange{v.Account, e.index})
		return notDry(tx, v.Account, q)
	})
}

// endOf returns the time from which content of a dry account may be deleted, and whether the
// account is dry.
func endOf(r Reader, a AccountID, grace Millis) (end Millis, dry bool, err error) {
	b, dry, err := r.Get(dryKey(a))
	if err != nil || !dry {
		return 0, false, err
	}
	if len(b) != 8 {
		return 0, false, fmt.Errorf("state: dry time of %d bytes", len(b))
	}
	m, err := get[metering](r, meteringKey)
	if err != nil {
		return 0, false, err
	}
	since := Millis(binary.BigEndian.Uint64(b))
	if m != nil {
		since = max(since, m.Since)
	}
	return since + grace, true, nil
}

// endsMore returns whether more content of a dry account must be deleted. It returns false while
// earlier deletions are not complete.
func endsMore(r Reader, a AccountID, q *Quota) (bool, error) {
	if q.Credits > 0 || q.Used() <= q.Allowance {
		return false, nil
	}
	soon, err := freeing(r, a)
	if err != nil || soon {
		return false, err
	}
	prefix := part(table(tableEmptying), a)
	err = r.Scan(prefix, prefix.end(), false, func(_, _ []byte) (bool, error) {
		soon = true
		return false, nil
	})
	return !soon, err
}

// endings counts what one EndContent has deleted.
type endings struct {
	pins, versions, uploads int
	first, last             Millis // creation times of the oldest and the newest of them
}

func (v *endings) all() int { return v.pins + v.versions + v.uploads }

func (v *endings) add(n *int, created Millis) {
	if v.all() == 0 {
		v.first, v.last = created, created
	}
	*n++
	v.first, v.last = min(v.first, created), max(v.last, created)
}

// String returns the counts and the times as text for the audit log.
func (v *endings) String() string {
	const form = "2006-01-02 15:04:05"
	text := ""
	for _, of := range []struct {
		n    int
		what string
	}{{v.pins, "pins"}, {v.versions, "versions of objects"}, {v.uploads, "uploads"}} {
		if of.n > 0 {
			text = withComma(text, fmt.Sprintf("%d %s", of.n, of.what))
		}
	}
	return fmt.Sprintf("%s, created from %s to %s", text, v.first.Time().UTC().Format(form), v.last.Time().UTC().Format(form))
}

// end deletes the named content, if it exists, and counts it in t.
func (v *Ending) end(tx Tx, a AccountID, t *endings, e *entry) error {
	if v.Pin != "" {
		p, err := findPin(tx, a, v.Pin)
		if err != nil || p == nil || p.Created != v.Created {
			return err
		}
		t.add(&t.pins, p.Created)
		e.settle--
		return dropPin(tx, p, nil, e)
	}
	b, err := findBucket(tx, a, v.Bucket)
	if err != nil || b == nil || b.Born != v.Born {
		return err
	}
	if v.Upload != "" {
		u, err := findUpload(tx, b, v.Key, v.Upload)
		if err != nil || u == nil || u.Created != v.Created {
			return err
		}
		t.add(&t.uploads, u.Created)
		e.settle--
		return b.endUpload(tx, u, e)
	}
	current, err := findObject(tx, b, v.Key)
	if err != nil {
		return err
	}
	o, err := b.version(tx, current, v.Key, v.Version)
	if err != nil || o == nil || o.Marker || o.Created != v.Created {
		return err
	}
	t.add(&t.versions, o.Created)
	e.settle--
	if b.Versioning == Unversioned {
		return b.remove(tx, o, e)
	}
	_, err = b.removeVersion(tx, o, current, e)
	return err
}

// ContentEnds returns the time from which content of a dry account may be deleted. The second
// result is false if the account is not dry or no longer stores more than its allowance.
func (v View) ContentEnds(a AccountID, grace Millis) (Millis, bool, error) {
	end, dry, err := endOf(v.r, a, grace)
	if err != nil || !dry {
		return 0, false, err
	}
	q, err := quotaOf(v.r, a)
	if err != nil {
		return 0, false, err
	}
	return end, q.Credits == 0 && q.Used() > q.Allowance, nil
}

// Dry returns up to limit dry accounts with ids above after, in the order of their ids.
func (v View) Dry(after AccountID, limit int) (all []AccountID, err error) {
	from, prefix := table(tableDry), table(tableDry)
	if after != "" {
		from = append(dryKey(after), 0)
	}
	err = v.r.Scan(from, prefix.end(), false, func(k, _ []byte) (bool, error) {
		a, _, err := readPart[AccountID](k[len(prefix):])
		all = append(all, a)
		return err == nil && len(all) < limit, err
	})
	return all, err
}

// EndsMore returns whether an EndContent would delete another item of a dry account. The caller
// has checked that the account is dry and has content. For a closed account it returns false.
func (v View) EndsMore(a AccountID) (bool, error) {
	if open, err := has(v.r, accountKey(a)); err != nil || !open {
		return false, err
	}
	q, err := quotaOf(v.r, a)
	if err != nil {
		return false, err
	}
	return endsMore(v.r, a, q)
}
