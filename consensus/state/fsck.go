package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Difference is one difference between what the state stores and what was computed from other rows.
// All fields are texts for people.
type Difference struct {
	Table    string // what the row is, such as "root"
	Key      string // key of the row; and which number of the row, if it has several
	Stored   string
	Computed string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s %s: stored %s, computed %s", d.Table, d.Key, d.Stored, d.Computed)
}

// Fsck is the result of View.Fsck.
type Fsck struct {
	Rows        uint64       // number of rows of the state
	Differences []Difference // at most as many as the caller has asked for
	More        uint64       // number of further differences
	AtLeast     bool         // More is a lower bound
}

// Fsck computes all indexes and counters of the state from the records and compares them with the
// rows of the state, and decodes every row. It reports up to limit differences and repairs nothing.
//
// It reads the state once, and a second time if something differs. Its memory does not depend on
// the size of the state: about 1 MiB for the sums of a tally, in the second pass at most openFacts
// facts, and the buckets of one account or the pins of one run of packed pairs. It calls pace after
// about every hashBuffer bytes with the number of bytes read since, so that the caller can limit the rate, and returns the
// first error of pace.
func (v View) Fsck(limit int, pace func(bytes int) error) (Fsck, error) {
	out, r := &Fsck{}, &noting{r: v.r}
	c := &fsck{r: r, index: v.index, limit: limit, pace: pace, out: out, first: true, tally: newTally()}
	if err := cmp.Or(c.pass(), r.err); err != nil {
		return *out, fmt.Errorf("state: fsck: %w", err)
	}
	again := c.tally.again()
	if again == nil {
		return *out, nil
	}
	c = &fsck{r: r, index: v.index, limit: limit, pace: pace, out: out, tally: again}
	if err := cmp.Or(c.pass(), r.err); err != nil {
		return *out, fmt.Errorf("state: fsck: %w", err)
	}
	for _, d := range again.differences() {
		out.add(d, limit)
	}
	if again.shut > 0 {
		out.More, out.AtLeast = out.More+uint64(again.shut), true
	}
	return *out, nil
}

// noting is a Reader that remembers its first error. Checks read records of other rows, and cannot tell
// an error of the store from a record that cannot be decoded, which is reported with its own row.
type noting struct {
	r   Reader
	err error
}

// Get implements Reader.
func (n *noting) Get(k []byte) (value []byte, ok bool, err error) {
	if value, ok, err = n.r.Get(k); n.err == nil {
		n.err = err
	}
	return value, ok, err
}

// Scan implements Reader.
func (n *noting) Scan(lower, upper []byte, reverse bool, fn func(k, value []byte) (more bool, err error)) error {
	err := n.r.Scan(lower, upper, reverse, fn)
	if n.err == nil {
		n.err = err
	}
	return err
}

func (v *Fsck) add(d Difference, limit int) {
	if len(v.Differences) < limit {
		v.Differences = append(v.Differences, d)
	} else {
		v.More++
	}
}

// fsck is one pass of View.Fsck. Methods that are named after tables check the current row, whose
// key and value are k and v. They return only errors of the reader.
type fsck struct {
	r     Reader
	index uint64
	limit int
	pace  func(bytes int) error
	out   *Fsck
	tally *tally
	first bool // the first pass, which counts rows and reports what is wrong with a row itself

	k key
	v []byte

	level    FeatureLevel
	indexing *indexing
	cluster  *Cluster
	ops      operations
	settles  bool // pins of some roots are being changed to the status of their root

	account accountFacts // of the account that was asked for last
	root    rootFacts    // of the root that was asked for last
	upload  uploadFacts
	charged chargedTo
	newest  newestPin
	version lastVersion
	ledger  lastPosting
	packed  lastChunk
	audit   AuditChain
}

// pass reads all rows once.
func (c *fsck) pass() error {
	if err := c.begin(); err != nil {
		return err
	}
	var of fsckTable
	known, at, read := false, byte(0), 0
	err := c.r.Scan([]byte{0x01}, nil, false, func(k, v []byte) (bool, error) {
		if k[0] != at {
			at = k[0]
			of, known = fsckTableOf(at)
		}
		c.k, c.v = k, v
		if c.first {
			c.out.Rows++
		}
		read += len(k) + len(v)
		if read >= hashBuffer {
			if err := c.pace(read); err != nil {
				return false, err
			}
			read = 0
		}
		if !known {
			c.differs("a row", "nothing: there is no such table")
			return true, nil
		}
		return true, of.check(c)
	})
	if err == nil {
		err = errors.Join(c.newest.end(c), c.endAudit(), c.pace(read))
	}
	return err
}

// begin reads the settings of the state that other checks need.
func (c *fsck) begin() (err error) {
	c.k = clusterKey
	if c.cluster, err = get[Cluster](c.r, clusterKey); err != nil || c.cluster == nil {
		c.differs(errText(err), "the record of the cluster")
		c.cluster = &Cluster{Replication: MaxCopies}
	}
	c.k = levelKey
	if c.level, err = levelOf(c.r); err != nil {
		c.differs(errText(err), "a feature level")
	}
	c.k = indexingKey
	if c.indexing, err = get[indexing](c.r, indexingKey); err != nil {
		c.differs(errText(err), "the progress of the index by meta")
	}
	c.k = opNext
	if c.ops, err = readOperations(c.r); err != nil {
		c.differs(errText(err), "the extent of the remembered operations")
	}
	c.k = auditKey
	head, err := readAuditHead(c.r)
	if err != nil {
		c.differs(errText(err), "the extent of the audit log")
		head = &auditHead{First: 1, Next: 1}
	}
	c.audit = AuditChain{Next: head.First, Hash: head.Anchor}
	prefix := table(tableSettling)
	return c.r.Scan(prefix, prefix.end(), false, func(_, _ []byte) (bool, error) {
		c.settles = true
		return false, nil
	})
}

func errText(err error) string {
	if err == nil {
		return "nothing"
	}
	return err.Error()
}

// differs reports that the current row is wrong. In the second pass it does nothing.
func (c *fsck) differs(stored, computed string) {
	if !c.first {
		return
	}
	d := differenceAt(c.k)
	d.Stored, d.Computed = stored, computed
	c.out.add(d, c.limit)
}

// stored adds the current row, an index row that can be computed.
func (c *fsck) stored() { c.tally.row(c.k, c.v, true) }

// computed adds a row that should exist.
func (c *fsck) computed(k key, value []byte) { c.tally.row(k, value, false) }

// computedRecord adds a row with a record that should exist.
func computedRecord[T any, P record[T]](c *fsck, k key, v *T) error {
	b, err := encode[T, P](v)
	if err == nil {
		c.computed(k, b)
	}
	return err
}

// counts adds 1 to a computed number; the row k is its counter, or has it under the name.
func (c *fsck) counts(k key, name string, n uint64) { c.tally.number(k, name, n, false) }

// counter adds the current row, which is a counter.
func (c *fsck) counter() {
	n, ok := c.number()
	if ok && n == 0 {
		c.differs("0", "nothing: a counter has no row at 0")
	}
	c.tally.number(c.k, aCounter, n, true)
}

// aCounter is the name of the number in the row of a counter.
const aCounter = "count"

// number decodes the current row as a number of 8 bytes.
func (c *fsck) number() (n uint64, ok bool) {
	if len(c.v) != 8 {
		c.differs(valueText(c.v), "a number of 8 bytes")
		return 0, false
	}
	return binary.BigEndian.Uint64(c.v), true
}

// empty reports a value in a row that should have none.
func (c *fsck) empty() {
	if len(c.v) > 0 {
		c.differs(valueText(c.v), "an empty value")
	}
}

// read decodes the current row. It returns nil, and reports the row, if that fails or if the record
// belongs to another key.
func read[T any, P record[T]](c *fsck, at func(*T) key) *T {
	v, err := decode[T, P](c.v)
	if err != nil {
		c.differs(valueText(c.v), "a record ("+err.Error()+")")
		return nil
	}
	if k := at(v); !bytes.Equal(k, c.k) {
		c.differs("a record with the key "+differenceAt(k).Key, "one with the key of the row")
		return nil
	}
	return v
}

// here is the key of records that do not know their key.
func here[T any](c *fsck) func(*T) key { return func(*T) key { return c.k } }

// needs reports the current row if the row k does not exist.
func (c *fsck) needs(k key, what string) error {
	there, err := has(c.r, k)
	if err == nil && !there {
		c.differs(valueText(c.v), "nothing: there is no "+what)
	}
	return err
}

// parsed reports the current row if its key could not be parsed.
func (c *fsck) parsed(err error) bool {
	if err != nil {
		c.differs("a row", "nothing: "+err.Error())
	}
	return err == nil
}

// accountFacts are what rows of an account are checked with.
type accountFacts struct {
	id      AccountID
	known   bool // the other fields are set
	exists  bool
	closing bool // the account is closed, and its records are being removed
	quota   bool // it has a quota
	packed  Millis
	buckets map[Incarnation]*Bucket // at most MaxBucketsPerUser; nil until they are needed
}

// of returns the facts of an account.
func (c *fsck) of(a AccountID) (*accountFacts, error) {
	f := &c.account
	if f.known && f.id == a {
		return f, nil
	}
	*f = accountFacts{id: a, known: true}
	var errs [3]error
	f.exists, errs[0] = has(c.r, accountKey(a))
	f.closing, errs[1] = has(c.r, closingKey(a))
	f.quota, errs[2] = has(c.r, quotaKey(a))
	if packed, ok, err := c.r.Get(packedToKey(a)); err != nil {
		return f, err
	} else if ok && len(packed) == 8 {
		f.packed = Millis(binary.BigEndian.Uint64(packed))
	}
	return f, errors.Join(errs[:]...)
}

// owner reports the current row if its account does not exist, and is not being removed either.
func (c *fsck) owner(a AccountID) error {
	f, err := c.of(a)
	if err == nil && !f.exists && !f.closing {
		c.differs(valueText(c.v), fmt.Sprintf("nothing: there is no account %q", a))
	}
	return err
}

// open reports the current row if its account does not exist.
func (c *fsck) open(a AccountID) error { return c.needs(accountKey(a), fmt.Sprintf("account %q", a)) }

// bucket returns the open bucket with an incarnation, or nil if there is none.
func (c *fsck) bucket(a AccountID, born Incarnation) (*Bucket, error) {
	f, err := c.of(a)
	if err != nil {
		return nil, err
	}
	if f.buckets == nil {
		f.buckets = map[Incarnation]*Bucket{}
		prefix := bucketsOf(a)
		err = c.r.Scan(prefix, prefix.end(), false, func(_, value []byte) (bool, error) {
			if b, err := decode[Bucket](value); err == nil { // else the row of the bucket is reported
				f.buckets[b.Born] = b
			}
			return true, nil
		})
	}
	return f.buckets[born], err
}

// rootFacts are what rows of a root are checked with.
type rootFacts struct {
	key      RootKey
	record   *Root // nil if there is none
	settling bool  // its pins are being changed to its status
}

// rootOf returns the facts of a root. A record that cannot be decoded counts as missing; its own
// row is reported.
func (c *fsck) rootOf(k RootKey) (*rootFacts, error) {
	if c.root.key == k && k != "" {
		return &c.root, nil
	}
	row, ok, err := c.r.Get(rootKey(k))
	if err != nil {
		return nil, err
	}
	c.root = rootFacts{key: k}
	if ok {
		c.root.record, _ = decode[Root](row)
	}
	if c.settles {
		c.root.settling, err = has(c.r, settlingKey(k))
	}
	return &c.root, err
}

// takePart decodes a part at the beginning of *rest and removes it. After an error it does nothing.
func takePart[S ~string](rest *[]byte, err *error) (s S) {
	if *err == nil {
		s, *rest, *err = readPart[S](*rest)
	}
	return s
}

// takeU64 decodes a number at the beginning of *rest and removes it. After an error it does nothing.
func takeU64(rest *[]byte, err *error) (n uint64) {
	if *err == nil && len(*rest) < 8 {
		*err = fmt.Errorf("state: short key")
	}
	if *err != nil {
		return 0
	}
	n, *rest = binary.BigEndian.Uint64(*rest), (*rest)[8:]
	return n
}

// kept returns a copy of a slice that is valid only during a call.
func kept(k key) key { return slices.Clone(k) }
