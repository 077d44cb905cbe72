package state

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// LedgerLevel is the lowest feature level with postings other than grants, and with ordered
// postings that record the balance.
const LedgerLevel FeatureLevel = 9

// Limits of the ledger of an account.
const (
	// MaxPostings is the largest number of postings of an account. Charged every hour, an account
	// reaches it after more than a thousand years.
	MaxPostings = 10_000_000
	// MaxCredits is the largest number of credits of one posting.
	MaxCredits = math.MaxInt64
	// maxGrants is the largest number of postings below LedgerLevel.
	maxGrants = 10_000
	// maxNote is the largest length of a note in bytes.
	maxNote = 512
)

// PostingKind is the reason for a posting. The numbers are on disk: never renumber them.
type PostingKind uint8

// All kinds of postings. A correction can add or remove credits; the other kinds have one fixed
// direction.
const (
	Grant      PostingKind = 1 // an operator gives credits
	Refund     PostingKind = 2 // credits that were charged come back
	Charge     PostingKind = 3 // the account pays
	Correction PostingKind = 4 // another posting was wrong
)

// String returns the name of the kind.
func (k PostingKind) String() string {
	switch k {
	case Grant:
		return "grant"
	case Refund:
		return "refund"
	case Charge:
		return "charge"
	case Correction:
		return "correction"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Posting is one row of an account's ledger. It never changes while the account exists.
type Posting struct {
	ID       string // chosen by the client; unique in the account
	Account  AccountID
	Kind     PostingKind // 0 in records from before LedgerLevel: a grant
	Credits  uint64
	Takes    bool   // true if the account loses the credits
	Corrects string // id of the posting that a correction corrects
	Note     string
	Made     Millis // time by the clock of the proposer

	// Apply sets the following fields. Records from before LedgerLevel have none of them.
	By      Actor  // kind, account and e-mail address of the caller; the audit log has the rest
	Seq     uint64 // order in the account; the first posting has 1
	Balance uint64 // credits of the account after the posting
}

// Code encodes or decodes the record. Version 1 is that of grants below LedgerLevel.
func (v *Posting) Code(c *codec.Coder) {
	version := uint64(2)
	if !c.Decoding() && v.Seq == 0 {
		version = 1
	}
	version = c.Version(version)
	codec.String(c, &v.ID, MaxIDLen)
	codec.String(c, &v.Account, MaxIDLen)
	codec.Uint(c, &v.Credits)
	codec.Int(c, &v.Made)
	if version < 2 {
		return
	}
	v.codeRest(c)
	codec.Uint(c, &v.By.Kind)
	codec.String(c, &v.By.Account, MaxIDLen)
	codec.String(c, &v.By.Email, MaxEmailLen)
	codec.Uint(c, &v.Seq)
	codec.Uint(c, &v.Balance)
}

// codeRest encodes or decodes the fields that a client sets and that version 1 of the record
// lacks.
func (v *Posting) codeRest(c *codec.Coder) {
	codec.Uint(c, &v.Kind)
	codec.Bool(c, &v.Takes)
	codec.String(c, &v.Corrects, MaxIDLen)
	codec.String(c, &v.Note, maxNote)
}

// Check returns ErrInvalid if a field that a client sets is out of bounds.
func (v *Posting) Check() error {
	switch {
	case v.ID == "" || len(v.ID) > MaxIDLen || !isPrintable(v.ID):
		return Errorf(CodeInvalid, "the name of a posting has 1 to %d bytes of UTF-8 without control characters", MaxIDLen)
	case v.Credits == 0 || v.Credits > MaxCredits:
		return Errorf(CodeInvalid, "a posting has 1 to %d credits", uint64(MaxCredits))
	case v.Kind < Grant || v.Kind > Correction:
		return Errorf(CodeInvalid, "a posting of an unknown kind, %d", v.Kind)
	case v.Kind != Correction && v.Takes != (v.Kind == Charge):
		return Errorf(CodeInvalid, "only charges and corrections take credits")
	case (v.Kind == Correction) != (v.Corrects != ""):
		return Errorf(CodeInvalid, "a correction names the posting that it corrects, and no other posting does")
	case len(v.Corrects) > MaxIDLen:
		return Errorf(CodeInvalid, "the name of a posting has at most %d bytes", MaxIDLen)
	case len(v.Note) > maxNote || !isPrintable(v.Note):
		return Errorf(CodeInvalid, "a note has at most %d bytes of UTF-8 without control characters", maxNote)
	}
	return nil
}

// isPrintable returns whether a text is valid UTF-8 without control characters.
func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// Signed returns the credits as a decimal number, with a minus if they leave the account.
func (v *Posting) Signed() string {
	if v.Takes {
		return fmt.Sprintf("-%d", v.Credits)
	}
	return fmt.Sprintf("%d", v.Credits)
}

// same returns whether a posting is a repeat of o, which has the same id. The note and the time
// may differ.
func (v *Posting) same(o *Posting) bool {
	return max(v.Kind, Grant) == max(o.Kind, Grant) && v.Credits == o.Credits && v.Takes == o.Takes && v.Corrects == o.Corrects
}

func postingKey(a AccountID, id string) key { return part(postingsOf(a), id) }

func postingsOf(a AccountID) key { return part(table(tablePosting), a) }

// ledgerKey returns the key of a posting in the order of the ledger, newest first.
func ledgerKey(a AccountID, seq uint64) key { return ledgerOf(a).u64(^seq) }

func ledgerOf(a AccountID) key { return part(table(tableLedger), a) }

// GrantCredits adds credits to an account; a repeat with the same posting id changes nothing.
// From LedgerLevel on, nodes propose PostCredits instead.
type GrantCredits struct{ Posting Posting }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *GrantCredits) Code(c *codec.Coder) { v.Posting.Code(c) }

func (v *GrantCredits) apply(tx Tx, e *entry) (Result, error) {
	p := v.Posting
	if p.ID == "" || len(p.ID) > MaxIDLen || p.Credits == 0 {
		return Result{}, Errorf(CodeInvalid, "a posting needs an id and credits")
	}
	level, err := levelOf(tx)
	if err != nil {
		return Result{}, err
	}
	if level >= LedgerLevel {
		p.Kind = Grant
		return Result{}, post(tx, &p, e)
	}
	q, old, err := postedAs(tx, &p)
	switch {
	case err != nil || old:
		return Result{}, err
	case q.Postings >= maxGrants:
		return Result{}, Errorf(CodeTooLarge, "the ledger has its most postings, %d", maxGrants)
	case q.Credits > math.MaxUint64-p.Credits:
		return Result{}, Errorf(CodeInvalid, "more credits than can be counted")
	}
	q.Credits += p.Credits
	q.Postings++
	if err := put(tx, postingKey(p.Account, p.ID), &p); err != nil {
		return Result{}, err
	}
	return Result{}, put(tx, quotaKey(p.Account), q)
}

// postedAs returns the quota of the posting's account, and whether the ledger already has the
// posting. Errors: ErrNotFound without such an account; ErrExists if the ledger has a different
// posting with the same id.
func postedAs(r Reader, p *Posting) (q *Quota, posted bool, err error) {
	if q, err = quotaOf(r, p.Account); err != nil {
		return nil, false, err
	}
	if err := forPeople(p.Account); err != nil {
		return nil, false, err
	}
	old, err := get[Posting](r, postingKey(p.Account, p.ID))
	if err == nil && old != nil && !old.same(p) {
		return nil, false, Errorf(CodeExists, "posting %s is another one, a %s of %s credits", p.ID, max(old.Kind, Grant), old.Signed())
	}
	return q, old != nil, err
}

// PostCredits adds a posting to the ledger of an account. If the ledger has an equal posting with
// the same id, nothing changes, so the command can be repeated. The command needs feature level
// LedgerLevel.
//
// Errors: ErrInvalid; ErrNotFound without such an account or without the posting to correct;
// ErrExists if the ledger has a different posting with the same id; ErrCredits if the balance
// would become negative; ErrTooLarge above MaxPostings.
type PostCredits struct{ Posting Posting }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *PostCredits) Code(c *codec.Coder) {
	p := &v.Posting
	codec.String(c, &p.ID, MaxIDLen)
	codec.String(c, &p.Account, MaxIDLen)
	codec.Uint(c, &p.Credits)
	codec.Int(c, &p.Made)
	p.codeRest(c)
}

func (v *PostCredits) apply(tx Tx, e *entry) (Result, error) {
	if err := needsLevel(tx, LedgerLevel, "the ledger needs feature level %d"); err != nil {
		return Result{}, err
	}
	p := v.Posting
	if err := p.Check(); err != nil {
		return Result{}, err
	}
	return Result{}, post(tx, &p, e)
}

// post checks a posting and adds it to the ledger, unless the ledger has it already.
func post(tx Tx, p *Posting, e *entry) error {
	q, posted, err := postedAs(tx, p)
	if err != nil || posted {
		return err
	}
	if p.Corrects != "" {
		if there, err := has(tx, postingKey(p.Account, p.Corrects)); err != nil {
			return err
		} else if !there {
			return Errorf(CodeNotFound, "the ledger has no posting %s to correct", p.Corrects)
		}
	}
	switch {
	case q.Postings >= MaxPostings:
		return Errorf(CodeTooLarge, "the ledger has its most postings, %d", MaxPostings)
	case p.Takes && q.Credits < p.Credits:
		return Errorf(CodeCredits, "the account has %d credits: a posting of %s would make the balance negative", q.Credits, p.Signed())
	case !p.Takes && q.Credits > math.MaxUint64-p.Credits:
		return Errorf(CodeInvalid, "more credits than can be counted")
	}
	return enter(tx, p, q, e)
}

// enter adds a checked posting to the ledger and changes the balance in q.
func enter(tx Tx, p *Posting, q *Quota, e *entry) error {
	if p.Takes {
		q.Credits -= p.Credits
	} else {
		q.Credits += p.Credits
	}
	q.Postings++
	p.By = Actor{Kind: e.by.Kind, Account: e.by.Account, Email: e.by.Email}
	return putPosting(tx, p, q)
}

// putPosting writes a new posting with its sequence and balance, and the quota of its account.
func putPosting(tx Tx, p *Posting, q *Quota) error {
	p.Seq, p.Balance = q.Postings, q.Credits
	if err := notDry(tx, p.Account, q); err != nil {
		return err
	}
	if err := put(tx, postingKey(p.Account, p.ID), p); err != nil {
		return err
	}
	if err := tx.Set(ledgerKey(p.Account, p.Seq), []byte(p.ID)); err != nil {
		return err
	}
	return put(tx, quotaKey(p.Account), q)
}

// orderPostings numbers the existing grants of all accounts and computes their balances when the
// cluster reaches LedgerLevel. It orders the grants of an account by time and then by id.
func orderPostings(tx Tx) error {
	all, err := scanAll[Posting](tx, table(tablePosting))
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b Posting) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Made, b.Made), cmp.Compare(a.ID, b.ID))
	})
	var seq, balance uint64
	for i := range all {
		p := &all[i]
		if i == 0 || all[i-1].Account != p.Account {
			seq, balance = 0, 0
		}
		seq, balance = seq+1, balance+p.Credits
		p.Kind, p.Seq, p.Balance = Grant, seq, balance
		if err := put(tx, postingKey(p.Account, p.ID), p); err != nil {
			return err
		}
		if err := tx.Set(ledgerKey(p.Account, seq), []byte(p.ID)); err != nil {
			return err
		}
	}
	return nil
}

// Posting returns a posting of an account, or ErrNotFound.
func (v View) Posting(a AccountID, id string) (Posting, error) {
	p, err := get[Posting](v.r, postingKey(a, id))
	if err == nil && p == nil {
		err = Errorf(CodeNotFound, "there is no such posting")
	}
	if err != nil {
		return Posting{}, err
	}
	return *p, nil
}

// Ledger returns up to limit postings of an account with a sequence below before, newest first.
// If before is 0, it begins with the newest posting. Below LedgerLevel the ledger is empty.
func (v View) Ledger(a AccountID, before uint64, limit int) ([]Posting, error) {
	from := ledgerOf(a)
	if before > 0 {
		from = ledgerKey(a, before-1)
	}
	var ids []string
	err := v.r.Scan(from, ledgerOf(a).end(), false, func(_, id []byte) (bool, error) {
		if len(ids) < limit {
			ids = append(ids, string(id))
		}
		return len(ids) < limit, nil
	})
	if err != nil {
		return nil, err
	}
	rows := make([]Posting, 0, len(ids))
	for _, id := range ids {
		p, err := get[Posting](v.r, postingKey(a, id))
		if err != nil {
			return nil, err
		}
		if p == nil {
			return nil, fmt.Errorf("state: posting %q of account %s has no record", id, a)
		}
		rows = append(rows, *p)
	}
	return rows, nil
}
