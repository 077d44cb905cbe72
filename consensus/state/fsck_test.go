package state

import (
	"encoding/binary"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// fsck returns what Fsck finds in the machine's store.
func (m *machine) fsck(limit int) Fsck {
	m.t.Helper()
	found, err := m.view().Fsck(limit, func(int) error { return nil })
	if err != nil {
		m.t.Fatal(err)
	}
	return found
}

// wantSound wants Fsck to read all rows and to find no difference.
func (m *machine) wantSound() {
	m.t.Helper()
	found := m.fsck(10)
	for _, d := range found.Differences {
		m.t.Errorf("fsck: %s", d)
	}
	if rows := m.txn.CommitOnly().Len(); found.Rows != uint64(rows) || found.More > 0 {
		m.t.Errorf("fsck read %d rows of %d, and found %d more differences", found.Rows, rows, found.More)
	}
}

// tablesOf returns the first byte of the keys of every table, by the constants of this package. It fails the test for two
// tables with the same byte.
func tablesOf(t *testing.T) map[byte]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	tables := map[byte]string{}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "table") {
				return true
			}
			if value, ok := spec.Values[0].(*ast.BasicLit); ok && value.Kind == token.CHAR {
				text, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Fatal(err)
				}
				if other := tables[text[0]]; other != "" {
					t.Errorf("%s and %s are both %s", spec.Names[0].Name, other, value.Value)
				}
				tables[text[0]] = spec.Names[0].Name
			}
			return true
		})
	}
	return tables
}

// Fsck has a check for each table, and names it differently from all others.
func TestFsckChecksEveryTable(t *testing.T) {
	names := map[string]string{}
	tables := tablesOf(t)
	if len(tables) < 60 {
		t.Fatalf("%d tables were found", len(tables))
	}
	for b, name := range tables {
		of, ok := fsckTableOf(b)
		if !ok {
			t.Errorf("fsck does not check %s", name)
		} else if other := names[of.name]; other != "" {
			t.Errorf("%s and %s have the name %q", name, other, of.name)
		}
		names[of.name] = name
	}
}

// lived returns the state after a random history, which is the same for the same seed. Some entries have
// room for one record only, so that work is left over.
func lived(seed int) *machine {
	return rapid.Custom(func(t *rapid.T) *machine {
		m := rich(t, Unlimited)
		m.must(&SetPassword{Account: bob, Hash: "h1"})
		for range 60 {
			var cmd Command
			switch rapid.IntRange(0, 5).Draw(t, "of") {
			case 0, 1:
				cmd = anyCommand(t, m)
			case 2, 3:
				cmd = anyNaming(t, m)
			case 4:
				cmd = anyCredential(t, m)
			default:
				cmd = anyPayment(t, m)
			}
			var err error
			if rapid.Bool().Draw(t, "narrow") {
				m.index++
				_, err = run(m.memory, cmd, &entry{index: m.index, settle: 1, fx: &m.fx})
			} else {
				_, err = m.apply(cmd)
			}
			if err != nil && !isOutcome(err) {
				t.Fatal(err)
			}
		}
		return m
	}).Example(seed)
}

// withRest adds rows to tables that random histories do not reach.
func (m *machine) withRest() {
	m.t.Helper()
	m.must(&OpenAccount{Account: Account{ID: "carol", Email: "carol@example.org", PasswordHash: "h"}, Allowance: 0})
	m.must(&PostCredits{Posting{ID: "g1", Account: "carol", Kind: Grant, Credits: 1}})
	b := m.bucket("carol", "shelf")
	m.must(&SetBucketCors{Account: "carol", Bucket: "shelf", Born: b.Born, Cors: Cors{Rules: []CorsRule{{Origins: []string{"*"}, Methods: []string{"GET"}, MaxAge: -1}}}})
	m.must(&SetBucketTags{Account: "carol", Bucket: "shelf", Born: b.Born, Tags: BucketTags{Tags: []Tag{{"a", "1"}}}})
	m.must(&CreatePin{Pin: Pin{ID: "big", Account: "carol", CID: contents[0], Created: 1, Meta: map[string]string{"k": strings.Repeat("x", 9000)}}, Nodes: []NodeID{"n1"}})
	charge := func(i Millis) {
		m.must(&NoteUsage{Day: 7, Items: []AccountRequests{{"carol", 1_500_000}}, Node: "n1", Number: uint64(i) + 1})
		m.must(&ChargeStorage{Now: chargeStart + i*hour, Every: hour, Rate: MaxRate, Requests: 1})
	}
	charge(0)
	charge(1)
	charge(2)
	m.must(&NoteUsage{Day: 7, Items: []AccountRequests{{"carol", 5}}, Node: "n1", Number: 9})
	m.must(&AddApp{App{Name: "app", Redirects: []string{"myapp://done"}, Scope: []string{ScopeRead}}})
	m.must(&DecideAdmin{Account: "carol", Admin: true})
	m.must(&OpenAccount{Account: Account{ID: "dave", Email: "dave@example.org", PasswordHash: "h"}, Allowance: 1})
	m.must(&DecideAdmin{Account: "dave"})
	m.must(&LinkIdentity{identity("dave", "1")})
	m.must(&AddOneTimeLink{Link: OneTimeLink{ID: "l", Purpose: ForPassword, Account: "dave", Proof: PasswordProof("h"), Expires: 99}})
	m.must(&SetDisabled{Account: "dave", On: true, At: 300})
	m.must(&Fence{Node: "n1", Epoch: 3})
	m.must(&CreateTicket{Ticket: Ticket{ID: "ticket", Expires: 1 << 40}})
	m.must(&Audited{By: admin, At: 1, Change: &SetQuota{Account: "dave", Allowance: 5}})
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	nodes, err := m.view().Nodes()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, n := range nodes {
		n.FeatureLevel, n.Store, n.Votes = NewestFeatureLevel, StoreID("store of "+n.ID), true
		m.must(&UpdateNode{n})
	}
	at := m.checkNow()
	for i, id := range []NodeID{"n1", "n2", "n3"} {
		m.reportHash(id, at, byte(i/2))
	}
}

// furnished returns a state with work that is left over: an upload that has ended, a replaced root that is
// kept, a drained member, and an object with checksums of its parts.
func furnished(t *testing.T) *machine {
	t.Helper()
	s := shelved(t, Unlimited)
	s.must(s.summed("k", "u1", "v1"))
	s.index++
	if _, err := run(s.memory, s.uploaded("film", "u2", 5), &entry{index: s.index, settle: 1, fx: &s.fx}); err != nil {
		t.Fatal(err)
	}
	s.must(create(alice, "old", cidAt(t, 100)))
	s.hold(rootOf(t, cidAt(t, 100)))
	s.must(&ReplacePin{Old: "old", Pin: create(alice, "new", cidAt(t, 101)).Pin, Nodes: []NodeID{"n1", "n2", "n3"}})
	s.must(&SetDrain{Node: "n3", On: true, At: 1})
	return s.machine
}

// rowForm returns the part of a table whose rows have one form.
func rowForm(k string) string {
	t := k[0]
	switch t {
	case tablePins, tableNames, tableOnce:
		if at := partEnd([]byte(k)); at > 0 && at < len(k) {
			return k[:1] + k[at:at+1]
		}
	case tablePaid, tableUse:
		return k[:2]
	case tableMeta:
		name, _, _ := strings.Cut(k[1:], "/")
		if name == "pins" {
			name = k[1:]
		}
		if strings.HasPrefix(name, "signed") {
			name = "signed"
		}
		return "M" + name
	}
	return k[:1]
}

// traceless are the forms of rows that nothing else in the state tells of, so that a deleted row leaves
// no difference.
func traceless() []string {
	return []string{
		string(rune(tableUse)) + "\x01", string(rune(tableUse)) + "\x02", string(rune(tableOwed)), string(rune(tableRequests)), string(rune(tableDry)), string(rune(tableCounted)),
		string(rune(tableCheck)), string(rune(tableQuarantine)), string(rune(tableDisabled)), string(rune(tableAdmin)), string(rune(tableNoAdmin)),
		string(rune(tableOneTime)), string(rune(tableApp)), string(rune(tableUsage)), string(rune(tableCors)), string(rune(tableBucketTags)),
		string(rune(tableFence)), string(rune(tableSurplus)), string(rune(tableArrived)), string(rune(tableEmptying)), string(rune(tableClosing)), string(rune(tableBorn)),
		string(rune(tableNames)) + "t", string(rune(tableBucket)), // where there are no names, and no objects
		"Mpins/indexing", "Msole", "Mmetering", "Mpins/packing", "Msigning",
	}
}

// Fsck finds every row that is changed, and every one that is deleted unless nothing else tells of it. It
// finds a difference in what it calls the table of the row, or in a row that belongs to it.
func TestFsckFindsEveryBrokenRow(t *testing.T) {
	const most = 3 // rows of each form
	seen, undetected := map[string]int{}, map[string]string{}
	for seed := range 61 {
		m := furnished(t)
		if seed > 0 {
			m = lived(seed)
			m.t = t
			m.withRest()
		}
		m.wantSound()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		rows := append(m.rows(), m.rows(tableOp, tableOpOrder)...)
		for _, r := range append(rows, row{key: string(opNext)}) {
			form := rowForm(r.key)
			if seen[form]++; seen[form] > most {
				continue
			}
			value, _, _ := m.Get([]byte(r.key))
			for how, breaks := range map[string]func(m *memory) error{
				"deleted": func(m *memory) error { return m.Delete([]byte(r.key)) },
				"changed": func(m *memory) error {
					m.txn.Insert([]byte(r.key), append(slices.Clone(value), 0xf7))
					return nil
				},
			} {
				broken := &machine{memory: m.fork(), t: t, index: m.index}
				if err := breaks(broken.memory); err != nil {
					t.Fatal(err)
				}
				found := broken.fsck(20)
				if len(found.Differences) == 0 && !(how == "deleted" && slices.Contains(traceless(), form)) {
					undetected[form+" "+how] = differenceAt(key(r.key)).Table + " " + differenceAt(key(r.key)).Key
				}
			}
		}
	}
	for form, of := range undetected {
		t.Errorf("%q: no difference: %s", form, of)
	}
	for b, name := range tablesOf(t) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(seen)), func(form string) bool { return form[0] == b }) {
			t.Errorf("no row of %s was broken", name)
		}
	}
}

// add adds to the number in the row k.
func (m *machine) add(k key, n int64) {
	m.t.Helper()
	old, err := counter(m, k)
	if err != nil {
		m.t.Fatal(err)
	}
	m.txn.Insert([]byte(k), binary.BigEndian.AppendUint64(nil, uint64(int64(old)+n)))
}

// change changes the record in the row k.
func change[T any, P record[T]](m *machine, k key, by func(*T)) {
	m.t.Helper()
	v, err := get[T, P](m, k)
	if err != nil || v == nil {
		m.t.Fatalf("no record %x: %v", []byte(k), err)
	}
	by(v)
	b, err := encode[T, P](v)
	if err != nil {
		m.t.Fatal(err)
	}
	m.txn.Insert([]byte(k), b)
}

// Fsck names the table and the key of what differs, and says what is stored and what was computed.
func TestFsckNamesWhatDiffers(t *testing.T) {
	s := shelved(t, Unlimited)
	content := rootOf(t, contents[0])
	pin := create(bob, "p1", contents[0])
	pin.Pin.Name, pin.Pin.Meta, pin.Pin.Created = "photo", map[string]string{"app": "x"}, packEvery
	s.must(pin)
	s.hold(content)
	s.must(s.putOf("k", "v1", contents[1]))
	s.must(s.setPublic(true))
	s.refresh()
	s.wantSound()
	p, err := s.view().Pin(bob, "p1")
	if err != nil {
		t.Fatal(err)
	}
	linked := rootOf(t, contents[1])
	for _, tc := range []struct {
		name   string
		breaks func(m *machine)
		want   string
	}{
		{"pins of all", func(m *machine) { m.add(totalKey(Pinned), 4) }, "record or counter of the cluster pins/pinned, count: stored 5, computed 1"},
		{"pins of an account", func(m *machine) { m.add(counterKey(bob, Pinned, 2, 0), 1) }, "pin bob counter of status 3 2 0, count: stored 2, computed 1"},
		{"pinned pins with a pair", func(m *machine) { m.add(metaCounter(bob, pairOf("app", "x"), 2, 0), 2) }, "count: stored 3, computed 1"},
		{"copies on a node", func(m *machine) { m.add(heldKey("n2"), 1) }, "record or counter of the cluster held n2, count: stored 2, computed 1"},
		{"members", func(m *machine) { m.add(nodeCount, 1) }, "record or counter of the cluster nodes, count: stored 4, computed 3"},
		{"stored bytes", func(m *machine) { change(m, quotaKey(bob), func(q *Quota) { q.Stored++ }) }, "quota bob, stored bytes: stored 11, computed 10"},
		{"arriving bytes", func(m *machine) { change(m, quotaKey(bob), func(q *Quota) { q.Coming = 7 }) }, "quota bob, bytes that are arriving: stored 7, computed 0"},
		{"records", func(m *machine) { change(m, quotaKey(bob), func(q *Quota) { q.Records = 7 }) }, "quota bob, bytes of records: stored 7, computed 0"},
		{"credits", func(m *machine) { change(m, quotaKey(bob), func(q *Quota) { q.Credits = 7 }) }, "quota bob, credits: stored 7, computed 0"},
		{"a charge", func(m *machine) { change(m, chargeKey(bob, content), func(c *charge) { c.Bytes = 11 }) }, "charge bob " + content.String()},
		{"pins of a root", func(m *machine) { change(m, rootKey(content), func(r *Root) { r.Refs = 3 }) }, "root " + content.String() + ", pins: stored 3, computed 1"},
		{"versions of a root", func(m *machine) { change(m, rootKey(linked), func(r *Root) { r.Links = 2 }) }, ", versions and parts: stored 2, computed 1"},
		{"public versions", func(m *machine) { change(m, rootKey(linked), func(r *Root) { r.Public = 0 }) }, ", public versions: stored 0, computed 1"},
		{"a copy", func(m *machine) { _ = m.Delete(part(wantedOn("n2"), content)) }, "copy of a root on a node n2 " + content.String() + ": stored nothing, computed 0x03"},
		{"bytes of a bucket", func(m *machine) { m.add(s.b.stored(storedBytes), 5) }, ", count: stored 14, computed 9"},
		{"a name", func(m *machine) { _ = m.Delete(nameIndex(bob, "photo").descending(p.Created)) }, "pin bob by name photo 1970-01-01T00:00:00.512Z: stored nothing, computed p1"},
		{"a pair", func(m *machine) { _ = m.Delete(metaIndex(bob, pairOf("app", "x")).descending(p.Created)) }, "stored nothing, computed 0x03"},
		{"a packed name", func(m *machine) { _ = m.Delete(chunkKey(bob, 1)) }, "packed pins bob names from"},
		{"a pin of no root", func(m *machine) { _ = m.Delete(rootKey(content)) }, "root " + content.String() + ", pins: stored 0, computed 1"},
		{"an index row of no pin", func(m *machine) { _ = m.Set(locatorKey(bob, "p9"), []byte("x")) }, "pin bob by id p9: stored x, computed nothing"},
		{"no record", func(m *machine) { m.txn.Insert([]byte(rootKey(content)), []byte("what")) }, "root " + content.String() + ": stored what, computed a record ("},
		{"no table", func(m *machine) { m.txn.Insert([]byte("\x7fx"), []byte{}) }, `table '\x7f' x: stored a row, computed nothing: there is no such table`},
		{"the record of the cluster", func(m *machine) { _ = m.Delete(clusterKey) }, "record or counter of the cluster cluster: stored nothing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &machine{memory: s.fork(), t: t, index: s.index}
			tc.breaks(m)
			found := m.fsck(20)
			if !slices.ContainsFunc(found.Differences, func(d Difference) bool { return strings.Contains(d.String(), tc.want) }) {
				t.Errorf("%v does not have %q", found.Differences, tc.want)
			}
		})
	}
}

// However much differs, Fsck reports no more differences than asked for, and counts the others. It says so
// if it does not count all.
func TestFsckBoundsWhatItReports(t *testing.T) {
	for _, tc := range []struct {
		broken  int
		atLeast bool
	}{{5, false}, {100, false}, {5000, true}} {
		m := rich(t, Unlimited)
		for i := range tc.broken {
			_ = m.Set(locatorKey(bob, RequestID(strconv.Itoa(i))), []byte("x"))
		}
		found := m.fsck(10)
		if n := min(tc.broken, 10); len(found.Differences) != n || found.AtLeast != tc.atLeast {
			t.Errorf("of %d: %d differences, %t", tc.broken, len(found.Differences), found.AtLeast)
		}
		if sum := uint64(len(found.Differences)) + found.More; sum > uint64(tc.broken) || !tc.atLeast && sum != uint64(tc.broken) || sum < min(uint64(tc.broken), openCells) {
			t.Errorf("of %d: %d and %d more", tc.broken, len(found.Differences), found.More)
		}
	}
}

// A tally that has no room for the facts of a cell gives up the cell, and counts it as one that differs.
func TestATallyGivesUpCells(t *testing.T) {
	again := &tally{open: map[uint16]bool{}, facts: map[fact]*values{}}
	n := 0
	for cell := range tallyCells {
		again.open[uint16(cell)] = true
	}
	for ; again.shut == 0; n++ {
		again.number(key(nil).u64(uint64(n)), "n", 1, true)
	}
	if n != openFacts+1 || len(again.facts) >= openFacts || len(again.open) != tallyCells-1 {
		t.Errorf("after %d facts: %d facts of %d cells, %d given up", n, len(again.facts), len(again.open), again.shut)
	}
}

// Fsck ends with an error of the reader or of the caller, whichever row it needed.
func TestFsckEndsWithItsReader(t *testing.T) {
	m := furnished(t)
	stop := errors.New("stop")
	reads := 0
	if _, err := m.view().Fsck(10, func(int) error { reads++; return stop }); !errors.Is(err, stop) || reads != 1 {
		t.Errorf("%v after %d reads", err, reads)
	}
	for n := 0; ; n++ {
		failing := &broken{memory: m.memory, left: n}
		_, err := NewView(failing, m.index).Fsck(10, func(int) error { return nil })
		if failing.left >= 0 && n > 50 {
			break // all reads have failed once
		}
		if !errors.Is(err, errBroken) {
			t.Fatalf("read %d: %v", n, err)
		}
	}
}

// Fsck reads any rows to the end, whatever bytes their keys and values have.
func TestFsckReadsAnyRows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{memory: found(rt).fork(), t: rt, index: 100}
		rows := m.rows()
		for range rapid.IntRange(1, 20).Draw(rt, "rows") {
			k := []byte{rapid.Byte().Draw(rt, "table")}
			if rapid.Bool().Draw(rt, "of a row") {
				k = []byte(rapid.SampledFrom(rows).Draw(rt, "row").key)
				k = k[:rapid.IntRange(1, len(k)).Draw(rt, "length")]
			}
			k = append(k, rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(rt, "rest")...)
			if k[0] != 0 { // which is the node's own
				m.txn.Insert(k, rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(rt, "value"))
			}
		}
		m.fsck(5)
	})
}
