package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const grace = 24 * hour

// dries makes bob, who has no allowance, use up a credit by a charge. It returns the agreed time of
// that charge.
func (s *shelf) dries() Millis {
	s.t.Helper()
	s.must(&ChargeStorage{Now: chargeStart, Every: hour, Rate: MaxRate})
	s.must(&ChargeStorage{Now: chargeStart + hour, Every: hour, Rate: MaxRate})
	if q := s.quota(bob); q.Credits != 0 {
		s.t.Fatalf("bob has %d credits", q.Credits)
	}
	return chargeStart + hour
}

// filled returns a shelf on which bob stores roots of 10,000 bytes each, above his allowance: two pins,
// a version that is not current and its successor, and an upload. He has a credit.
func filled(t reporter) *shelf {
	t.Helper()
	s := shelved(t, 0)
	s.must(&PostCredits{Posting{ID: "g", Account: bob, Kind: Grant, Credits: 1}})
	s.must(&SetVersioning{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Versioning: Versioned})
	s.b.Versioning = Versioned
	large := func(c Command) {
		t.Helper()
		switch c := c.(type) {
		case *PutObject:
			c.Content.Bytes, c.Object.Size = 10_000, 9_999
		case *PutPart:
			c.Content.Bytes, c.Part.Size = 10_000, 9_999
		}
		s.must(c)
	}
	large(s.putOf("old", "v1", contents[1])) // at 5
	second := s.putOf("old", "v2", contents[2])
	second.Object.Created = 20
	large(second)
	begin := s.begin("up", "u1")
	begin.Upload.Created = 30
	s.must(begin)
	large(s.partOf("up", "u1", 1, "p1", contents[3]))
	s.must(&CreatePin{Pin: Pin{ID: "again", Account: bob, CID: contents[2], Created: 40}, Nodes: []NodeID{"n1"}})
	s.check()
	return s
}

// names returns what an account has, newest first.
func (s *shelf) names() (names []string) {
	s.t.Helper()
	all, err := s.view().Newest(bob, 100)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range all {
		names = append(names, string(all[i].Pin)+string(all[i].Version)+string(all[i].Upload))
		if there, err := s.view().Has(bob, &all[i]); err != nil || !there {
			s.t.Errorf("%+v: there %v, %v", all[i], there, err)
		}
	}
	return names
}

// ends returns the command that ends all of bob's content at a time.
func (s *shelf) ends(now Millis) *EndContent {
	s.t.Helper()
	all, err := s.view().Newest(bob, MaxEnded)
	if err != nil {
		s.t.Fatal(err)
	}
	return &EndContent{Account: bob, Now: now, Grace: grace, Items: all}
}

// After the grace the newest content of a dry account ends, until the rest fits into the allowance.
func TestContentOfADryAccountEndsNewestFirst(t *testing.T) {
	s := filled(t)
	if got := s.names(); !slices.Equal(got, []string{"again", "u1", "v2", "v1"}) {
		t.Fatalf("bob has %q", got)
	}
	dry := s.dries()
	if err := s.create(bob, "new", contents[4]); !errors.Is(err, ErrQuota) {
		t.Errorf("a dry account gets new content: %v", err)
	}
	end, ends, err := s.view().ContentEnds(bob, grace)
	if err != nil || !ends || end != dry+grace {
		t.Errorf("content ends at %d, not %d: %v, %v", end, dry+grace, ends, err)
	}
	if all, err := s.view().Dry("", 10); err != nil || !slices.Equal(all, []AccountID{bob}) {
		t.Errorf("dry are %q, %v", all, err)
	}
	for range 3 { // later charges do not prolong the grace
		s.must(&ChargeStorage{Now: dry + 5*hour, Every: hour, Rate: MaxRate})
	}
	unchanged := s.rows()
	s.must(s.ends(dry + grace - 1))
	if !slices.Equal(s.rows(), unchanged) {
		t.Error("content ended before its time")
	}
	s.must(&SetQuota{Account: bob, Allowance: 12_000})
	s.must(s.ends(dry + grace))
	// The pin shares its content with v2, so it frees nothing.
	if got := s.names(); !slices.Equal(got, []string{"v1"}) || s.quota(bob).Stored != 10_000 {
		t.Errorf("bob has %q, of %d bytes", got, s.quota(bob).Stored)
	}
	if s.current("old") != "v1" {
		t.Errorf("the version before is not the current one: %q", s.current("old"))
	}
	s.check()
	rows := s.entries()
	if last := rows[len(rows)-1]; last.Action != ActionUserDry || last.Actor != (Actor{}) ||
		last.Detail != "bob@example.org, no credits: content ended, 1 pins, 1 versions of objects, 1 uploads, created from 1970-01-01 00:00:00 to 1970-01-01 00:00:00, 20000 bytes" {
		t.Errorf("the row in the audit log is %+v", last)
	}
	if _, ends, err := s.view().ContentEnds(bob, grace); ends || err != nil {
		t.Errorf("content still ends: %v", err)
	}
	unchanged = s.rows()
	s.must(s.ends(dry + 100*grace))
	if !slices.Equal(s.rows(), unchanged) {
		t.Error("content within the allowance ended")
	}
}

// A grant, a larger allowance, and time without charges each protect what an account has.
func TestWhatProtectsContent(t *testing.T) {
	late := chargeStart + 100*grace
	for name, protect := range map[string]func(s *shelf){
		"a grant": func(s *shelf) {
			s.must(&PostCredits{Posting{ID: "h", Account: bob, Kind: Grant, Credits: 1}})
		},
		"a grant that is taken back": func(s *shelf) { // the grace begins at the next charge
			s.must(&PostCredits{Posting{ID: "h", Account: bob, Kind: Grant, Credits: 1}})
			s.must(&PostCredits{Posting{ID: "i", Account: bob, Kind: Correction, Corrects: "h", Credits: 1, Takes: true}})
		},
		"an allowance": func(s *shelf) { s.must(&SetQuota{Account: bob, Allowance: 30_000}) },
		"an allowance that is taken back": func(s *shelf) {
			s.must(&SetQuota{Account: bob, Allowance: 30_000})
			s.must(&SetQuota{Account: bob, Allowance: 0})
		},
		"charges that are off": func(s *shelf) { s.must(&ChargeStorage{Now: late, Every: hour}) },
		"a cluster that was down": func(s *shelf) {
			s.must(&ChargeStorage{Now: late, Every: hour, Rate: 1})
		},
		"the end of the account": func(s *shelf) { s.must(&CloseAccount{bob}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := filled(t)
			s.dries()
			before := s.rows()
			s.must(s.ends(late))
			if slices.Equal(s.rows(), before) {
				t.Fatal("nothing ends without the protection")
			}
			s.restore(before)
			protect(s)
			before = s.rows()
			cmd := s.ends(late)
			if len(cmd.Items) != 4 {
				t.Fatalf("%d items", len(cmd.Items))
			}
			s.must(cmd)
			if !slices.Equal(s.rows(), before) {
				t.Error("content ended")
			}
		})
	}
}

// An account that never had credits, one with only the blocks of accepted files above its allowance,
// and every account below GraceLevel are not dry.
func TestWhoIsNotDry(t *testing.T) {
	charge := func(m *machine) {
		t.Helper()
		for i := range 4 {
			m.must(&ChargeStorage{Now: chargeStart + Millis(i)*hour, Every: hour, Rate: MaxRate})
		}
		if rows := m.rows(tableDry); len(rows) > 0 {
			t.Errorf("dry are %v", rows)
		}
	}
	never := rich(t, 0)
	never.stores(bob, 1<<30)
	charge(never)

	full := rich(t, 0)
	full.must(&PostCredits{Posting{ID: "g", Account: bob, Kind: Grant, Credits: 1}})
	full.stores(bob, 1<<30+60<<10)
	full.must(&SetQuota{Account: bob, Allowance: 1 << 30})
	charge(full)
	full.stores(bob, 1<<31)
	full.must(&SetQuota{Account: bob, Allowance: 1 << 30})
	full.must(&ChargeStorage{Now: chargeStart + 4*hour, Every: hour, Rate: MaxRate})
	if rows := full.rows(tableDry); len(rows) != 1 {
		t.Errorf("with twice the allowance, dry are %v", rows)
	}
	full.stores(bob, 1<<30) // what was above is deleted
	full.must(&SetQuota{Account: bob, Allowance: 1 << 30})
	charge(full)

	old := found(t)
	old.must(&RaiseLevel{FeatureLevel: LedgerLevel})
	old.must(&PostCredits{Posting{ID: "g", Account: bob, Kind: Grant, Credits: 1}})
	old.stores(bob, 1<<30)
	charge(old)
	old.refused(&ChargeStorage{Now: 1, Every: 1, Requests: 1}, ErrUnavailable)
	old.refused(&EndContent{Account: bob, Now: 1}, ErrUnavailable)
	old.refused(&NoteUsage{Node: "n1", Number: 1}, ErrUnavailable)
	for _, bad := range []EndContent{{Now: -1}, {Grace: -1}, {Grace: MaxGrace + 1}} {
		never.refused(&bad, ErrInvalid)
	}
}

// One EndContent ends at most MaxEnded items, and none while the parts of an ended upload wait to be freed.
func TestContentEndsInBoundedSteps(t *testing.T) {
	s := shelved(t, 0)
	s.must(&PostCredits{Posting{ID: "g", Account: bob, Kind: Grant, Credits: 1}})
	const parts = MaxFreed + 5
	begin := s.begin("up", "u1")
	begin.Upload.Created = 50
	s.must(begin)
	for i := range parts {
		put := s.partOf("up", "u1", uint16(i+1), VersionID(fmt.Sprint("p", i)), contents[i%len(contents)])
		put.Content.Bytes = 10_000
		s.must(put)
	}
	for i := range MaxEnded + 3 {
		s.must(s.putOf(fmt.Sprintf("k%04d", i), VersionID(fmt.Sprint("v", i)), contents[i%len(contents)]))
	}
	now := s.dries() + grace
	if tooMany := (&EndContent{Account: bob, Now: now, Items: make([]Ending, MaxEnded+1)}); true {
		s.refused(tooMany, ErrInvalid)
	}
	objects := len(s.rows(tableObject))
	s.must(s.ends(now))
	if got := len(s.rows(tableObject)); got != objects || len(s.rows(tableUpload)) > 0 {
		t.Errorf("%d of %d versions are left while parts are freed", got, objects)
	}
	if more, err := s.view().EndsMore(bob); more || err != nil {
		t.Errorf("more ends: %v, %v", more, err)
	}
	s.cleared()
	for _, left := range []int{3, 0} {
		s.must(s.ends(now))
		if got := len(s.rows(tableObject)); got != left {
			t.Errorf("%d versions are left, not %d", got, left)
		}
	}
}

// View.Newest returns at most limit items, the newest first, and omits failed pins that weigh nothing.
func TestTheNewestOfMany(t *testing.T) {
	s := shelved(t, Unlimited)
	for i := range 30 {
		put := s.putOf(fmt.Sprintf("k%02d", (i*7)%30), VersionID(fmt.Sprint("v", i)), contents[i%len(contents)])
		put.Object.Created = Millis(100 + i)
		s.must(put)
	}
	s.must(&CreatePin{Pin: Pin{ID: "light", Account: bob, CID: contents[0], Created: 500, Name: "n"}, Nodes: []NodeID{"n1"}})
	all, err := s.view().Newest(bob, 4)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range all {
		got = append(got, string(e.Pin)+string(e.Version))
	}
	if !slices.Equal(got, []string{"light", "v29", "v28", "v27"}) {
		t.Errorf("the newest are %q", got)
	}
	m := rich(t, Unlimited)
	m.must(&CreatePin{Pin: Pin{ID: "failed", Account: bob, CID: contents[0], Created: 1}, Nodes: []NodeID{"n1"}})
	m.must(&CreatePin{Pin: Pin{ID: "heavy", Account: bob, CID: contents[0], Created: 2, Meta: map[string]string{"k": strings.Repeat("x", 5000)}}, Nodes: []NodeID{"n1"}})
	m.giveUp(rootOf(t, contents[0]), "nobody has it")
	if all, err := m.view().Newest(bob, 4); err != nil || len(all) != 1 || all[0].Pin != "heavy" {
		t.Errorf("of failed pins: %+v, %v", all, err)
	}
}

// A request is charged once if a numbered NoteUsage of a member counts it while requests have a price. A repeated
// or late NoteUsage and one without a number charge nothing. Fractions of a credit are not lost.
func TestRequestsAreCharged(t *testing.T) {
	m := rich(t, Unlimited)
	m.must(&PostCredits{Posting{ID: "g", Account: bob, Kind: Grant, Credits: 100}})
	note := func(node NodeID, number, n uint64) {
		t.Helper()
		m.must(&NoteUsage{Day: 7, Items: []AccountRequests{{bob, n}, {alice, n}}, Node: node, Number: number})
	}
	charge := func(hours int, price uint64) {
		t.Helper()
		for range 2 {
			m.must(&ChargeStorage{Now: chargeStart + Millis(hours)*hour, Every: hour, Requests: price})
		}
	}
	note("n1", 1, 5_000_000) // before requests have a price
	charge(0, 4)
	note("n1", 2, 1_000_000)
	note("n1", 2, 1_000_000) // a repeat
	note("n1", 1, 1_000_000) // an earlier command that comes late
	note("n2", 1, 250_000)
	note("gone", 1, 1_000_000)
	m.must(&NoteUsage{Day: 7, Items: []AccountRequests{{bob, 1_000_000}}}) // of an older release: it could come twice
	charge(1, 4)
	if got := m.charges(bob); got != 5 {
		t.Errorf("%d credits are charged for 1,250,000 requests", got)
	}
	ledger := m.ledger(bob)
	if p := ledger[len(ledger)-1]; !strings.HasPrefix(p.ID, "requests 2027-") || p.Note != "1250000 requests" {
		t.Errorf("the charge is %+v", p)
	}
	note("n2", 2, 125_000)
	charge(2, 4)
	note("n2", 3, 125_000)
	charge(3, 4)
	charge(4, 4)
	if got := m.charges(bob); got != 6 {
		t.Errorf("two halves of a credit make %d", got-5)
	}
	note("n1", 3, 1_000_000)
	charge(5, 0)
	note("n1", 4, 1_000_000) // requests have no price
	charge(6, 4)
	charge(7, 4)
	if got := m.charges(bob); got != 10 {
		t.Errorf("%d credits are charged for the last requests with a price", got-6)
	}
	if n, err := m.view().Counted("n1"); err != nil || n != 4 {
		t.Errorf("the last number is %d, %v", n, err)
	}
	if days, err := m.view().Usage(bob, 0); err != nil || days[0].Requests != 9_500_000 {
		t.Errorf("the usage is %+v, %v", days, err)
	}
	m.wantLedgers()
	m.must(&RemoveNode{ID: "n2"})
	if n, err := m.view().Counted("n2"); err != nil || n != 0 {
		t.Errorf("a removed member leaves %d, %v", n, err)
	}
	m.must(&CloseAccount{bob})
	m.must(&ClearAccounts{[]AccountID{bob}})
	for _, r := range m.rows(tableRequests, tableDry) {
		if strings.Contains(r.key, string(bob)) {
			t.Errorf("a closed account leaves %v", r)
		}
	}
}

// After any history EndContent ends content of an account until it may keep the rest or has none left. Every index
// and counter agrees with the records after each step, and no step makes the account use more.
func TestContentEndsAfterAnyHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := shelved(rt, 250)
		s.b = s.bucket(bob, "one")
		s.versioning(rapid.SampledFrom([]Versioning{Versioned, Suspended}).Draw(rt, "versioning"))
		s.bucket(bob, "two")
		for range rapid.IntRange(1, 30).Draw(rt, "commands") {
			cmd := anyNaming(rt, s.machine)
			if rapid.IntRange(0, 3).Draw(rt, "a pin") == 0 {
				cmd = anyCommand(rt, s.machine)
			}
			if _, err := s.apply(cmd); err != nil && !isOutcome(err) {
				rt.Fatal(err)
			}
		}
		q, err := get[Quota](s, quotaKey(bob))
		if err != nil {
			rt.Fatal(err)
		}
		if q == nil || q.Credits > 0 {
			return // closed, or not dry
		}
		s.must(&SetQuota{Account: bob, Allowance: rapid.Uint64Range(0, 100).Draw(rt, "allowance")})
		for step := 0; ; step++ {
			set(rt, s.memory, dryKey(bob), make([]byte, 8)) // no charge makes it: this is within the tolerance
			all, err := s.view().Newest(bob, rapid.IntRange(1, 3).Draw(rt, "items"))
			if err != nil || step > 200 {
				rt.Fatalf("content does not end: %+v of %+v, %v", all, s.quota(bob), err)
			}
			if more, err := s.view().EndsMore(bob); err != nil || !more || len(all) == 0 {
				break
			}
			before := s.quota(bob)
			s.must(&EndContent{Account: bob, Now: 9 * hour, Items: all})
			s.check()
			if after := s.quota(bob); after.Used() > before.Used() {
				rt.Errorf("%+v were left, and now %+v", before, after)
			}
		}
	})
}

// anyBooking returns a posting, or what anyCharge returns.
func anyBooking(t *rapid.T, m *machine, account AccountID) Command {
	if rapid.Bool().Draw(t, "a posting") {
		return anyPosting(t, account)
	}
	return anyCharge(t, m, account)
}

// anyCharge charges all accounts, counts requests, or ends content of one account.
func anyCharge(t *rapid.T, m *machine, account AccountID) Command {
	now := Millis(rapid.IntRange(0, 8).Draw(t, "hours")) * hour
	switch rapid.IntRange(0, 2).Draw(t, "charge") {
	case 0:
		price := rapid.SampledFrom([]uint64{0, 0, 1 << 30, MaxRate})
		return &ChargeStorage{Now: now, Every: hour, Rate: price.Draw(t, "rate"), Requests: price.Draw(t, "requests")}
	case 1:
		return &NoteUsage{Day: 1, Items: []AccountRequests{{account, 1 << 20}}, Node: "n1", Number: uint64(m.index)}
	}
	items, err := m.view().Newest(account, 1+rapid.IntRange(0, 3).Draw(t, "items"))
	if err != nil {
		t.Fatal(err)
	}
	return &EndContent{Account: account, Now: now, Items: items}
}
