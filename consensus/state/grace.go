package state

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// GraceLevel is the lowest feature level at which content of accounts without credits ends, and at
// which requests have a price.
const GraceLevel FeatureLevel = 10

// Bounds of the end of content.
const (
	// MaxEnded is the largest number of pins, versions and uploads that one EndContent ends.
	MaxEnded = 256
	// MaxGrace is the longest time for which a dry account can keep its content.
	MaxGrace = 3660 * dayMillis
	// A charge tolerates content above the allowance: the 1024th part of the allowance and slackBytes.
	// Puts are checked by the bytes of a file, and a DAG has a few more, see linking.afford. Without
	// credits, nobody should lose a file that was accepted.
	slackPart, slackBytes = 1024, 4096
)

// over returns whether an account stores more than its allowance and the tolerance.
func (v *Quota) over() bool {
	return v.Used() > addBounded(v.Allowance, v.Allowance/slackPart+slackBytes)
}

func dryKey(a AccountID) key { return part(table(tableDry), a) }

// noteDry records that a charge found too few credits at a time, if the account stores more than its
// allowance. Otherwise the account is not dry. An account that never had credits is not dry.
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

// notDry ends the dry time of an account that has credits, or stores no more than its allowance.
func notDry(tx Tx, a AccountID, q *Quota) error {
	if q.Credits == 0 && q.Used() > q.Allowance {
		return nil
	}
	if dry, err := has(tx, dryKey(a)); err != nil || !dry {
		return err
	}
	return tx.Delete(dryKey(a))
}

// Ending names a pin, a version or an upload that ends because its account is dry.
type Ending struct {
	Created Millis    // with the name it identifies the content
	Pin     RequestID // a pin; else empty

	Bucket  string
	Born    Incarnation
	Key     string
	Version VersionID // a version of the key; else empty
	Upload  UploadID  // an upload to the key; else empty
}

// Code encodes or decodes the ending as a part of a command.
func (v *Ending) Code(c *codec.Coder) {
	codec.Int(c, &v.Created)
	codec.String(c, &v.Pin, MaxIDLen)
	codec.String(c, &v.Bucket, maxBucketName)
	codec.Uint(c, &v.Born)
	codec.String(c, &v.Key, MaxKeyBytes)
	codec.String(c, &v.Version, MaxIDLen)
	codec.String(c, &v.Upload, MaxIDLen)
}

// EndContent ends content of a dry account, an account that had too few credits for a charge and has got
// none since. It ends Items in their order, as if the owner had deleted them for good, until the account
// stores no more than its allowance. The proposer gives the newest content first. Apply passes over items
// that are gone or have another time of creation. It ends nothing more while the parts of an ended upload
// or the records of a deleted bucket are being freed, because that may be enough. The command changes
// nothing if the account is not dry, is closed, or has been dry for less than Grace. The command needs
// feature level GraceLevel.
//
// Errors: ErrInvalid.
type EndContent struct {
	Account AccountID
	Now     Millis // a time that most members have reached
	Grace   Millis // time for which a dry account keeps its content
	Items   []Ending
}

// Code implements Command.
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

// endOf returns the time at which the content of an account begins to end, and whether the account is
// dry.
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

// endsMore returns whether more content of a dry account has to end.
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

// endings counts what a command has ended.
type endings struct {
	pins, versions, uploads int
	first, last             Millis // times of the oldest and the newest of them
}

func (v *endings) all() int { return v.pins + v.versions + v.uploads }

func (v *endings) add(n *int, created Millis) {
	if v.all() == 0 {
		v.first, v.last = created, created
	}
	*n++
	v.first, v.last = min(v.first, created), max(v.last, created)
}

// String returns the counts and the times in words.
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

// end ends one piece of content, if it is there.
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

// ContentEnds returns the time at which content of a dry account begins to end, if the account stores more
// than its allowance. For all other accounts it returns false.
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

// Dry returns up to limit dry accounts whose ids are above after, in the order of their ids.
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

// EndsMore returns whether an EndContent would end another item of a dry account. The caller checks that
// the account is dry and has content. EndsMore returns false for a closed account.
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
