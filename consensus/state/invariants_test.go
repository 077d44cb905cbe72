package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/ipfs/go-cid"
)

// check recomputes from the records alone everything that the state keeps for
// speed, and compares.
func (m *machine) check() {
	m.t.Helper()
	pins, roots := m.allPins(), m.allRoots()
	want := newMemory()
	for i := range pins {
		wantPin(m.t, want, &pins[i])
		m.wantMeta(want, &pins[i])
	}
	links := m.wantNames(want)
	m.wantRoots(want, pins, roots, links)

	nodes, err := m.view().Nodes()
	if err != nil {
		m.t.Fatal(err)
	}
	tickets, err := m.view().Tickets()
	if err != nil {
		m.t.Fatal(err)
	}
	bump(m.t, want, nodeCount, len(nodes))
	bump(m.t, want, ticketCount, len(tickets))
	m.wantDrains(want, nodes)
	m.wantSigned(want)
	m.wantCharges(want, pins, roots, links)
	m.wantWeights(pins)
	m.wantLedgers()
	m.wantAuditChain()
	m.wantPackedNames(pins)
	m.wantPairBits(pins)
	m.wantPayments(want)
	m.wantSound()

	for _, table := range []byte{
		tablePins, tableRoot, tableAttached, tableOrigin, tableWanted, tableSettling, tableShort, tableSurplus, tableRetained, tableMeta, tableCharge, tableArrived,
		tableObject, tableUpload, tablePart, tableStored, tableBegun, tableEnded, tableLink, tableVersion, tableVersionTime, tableTurning,
		tableCors, tableBucketTags, tablePartSums, tableUnhashed, tablePinEnd, tableBounded, tablePaid,
	} {
		got := slices.DeleteFunc(m.rows(table), func(r row) bool {
			lastCreated := slices.ContainsFunc(everyone(), func(a AccountID) bool { return r.key == string(pinKey(a, pinLast)) })
			return lastCreated || r.key == string(clusterKey) || r.key == string(opNext) || r.key == string(levelKey) || r.key == string(signingKey) || r.key == string(auditKey) || r.key == string(meteringKey) || r.key == string(indexingKey) || r.key == string(packingKey) || r.key == string(replacedKey)
		})
		compare(m.t, table, got, want.rows(table))
	}
}

func compare(t reporter, table byte, got, want []row) {
	t.Helper()
	missing := make(map[row]bool, len(want))
	for _, r := range want {
		missing[r] = true
	}
	for _, r := range got {
		if !missing[r] {
			t.Errorf("table %c: %q = %x is there and should not be", table, r.key, r.value)
		}
		delete(missing, r)
	}
	for r := range missing {
		t.Errorf("table %c: %q = %x is missing", table, r.key, r.value)
	}
}

func bump(t reporter, m *memory, k key, by int) {
	t.Helper()
	if by == 0 {
		return
	}
	n, err := counter(m, k)
	if err != nil {
		t.Fatal(err)
	}
	set(t, m, k, binary.BigEndian.AppendUint64(nil, n+uint64(by)))
}

func set(t reporter, m *memory, k key, value []byte) {
	t.Helper()
	if err := m.Set(k, value); err != nil {
		t.Fatal(err)
	}
}

// everyone returns the accounts of a history.
func everyone() []AccountID { return []AccountID{alice, bob, PaidAccount} }

// allPins reads every row that looks like a pin's.
func (m *machine) allPins() (pins []Pin) {
	m.t.Helper()
	for _, a := range everyone() {
		prefix := pinKey(a, pinRow)
		err := m.Scan(prefix, prefix.end(), false, func(_, value []byte) (bool, error) {
			p, err := decode[Pin](value)
			if err == nil {
				pins = append(pins, *p)
			}
			return true, err
		})
		if err != nil {
			m.t.Fatal(err)
		}
	}
	return pins
}

func (m *machine) allRoots() (roots []Root) {
	m.t.Helper()
	if err := m.view().Roots("", func(r Root) (bool, error) { roots = append(roots, r); return true, nil }); err != nil {
		m.t.Fatal(err)
	}
	return roots
}

// wantCharges writes what accounts should be charged, and compares the sums.
func (m *machine) wantCharges(want *memory, pins []Pin, roots []Root, links map[RootKey][]AccountID) {
	m.t.Helper()
	sums := map[AccountID]*Quota{}
	for i := range roots {
		r := &roots[i]
		arrived, err := counter(m, arrivedKey(r.Key))
		if err != nil {
			m.t.Fatal(err)
		}
		if arrived > 0 {
			bump(m.t, want, arrivedKey(r.Key), int(arrived))
		}
		for _, a := range everyone() {
			q, err := get[Quota](m, quotaKey(a))
			if err != nil {
				m.t.Fatal(err)
			}
			if q == nil {
				continue
			}
			linked := slices.Contains(links[r.Key], a)
			holds, stored := linked, linked
			for j := range pins {
				p := &pins[j]
				if k, err := p.root(); err != nil || k != r.Key || p.Account != a {
					continue
				}
				attached, _ := has(m, attachedKey(p, r.Key))
				holds, stored = holds || attached, stored || attached && (p.Status == Pinned || r.UnderReplicated)
			}
			c := charge{Bytes: arrived}
			if stored {
				c = charge{Bytes: r.Size, Stored: true}
			} else if now, err := get[charge](m, chargeKey(a, r.Key)); err != nil {
				m.t.Fatal(err)
			} else if now != nil && !now.Stored && now.Bytes > arrived {
				c = *now // by a pin that replaced another, see reserve
			}
			if settling, _ := has(m, settlingKey(r.Key)); !linked && (settling || m.narrow && !stored) { // charged by the first pin that was moved, or that an entry came to
				now, err := get[charge](m, chargeKey(a, r.Key))
				if err != nil {
					m.t.Fatal(err)
				}
				if now == nil { // or by none yet
					continue
				}
				c = *now
			}
			if !holds || c == (charge{}) {
				continue
			}
			if sums[a] == nil {
				sums[a] = new(Quota)
			}
			if err := errors.Join(c.on(sums[a], true), put(want, chargeKey(a, r.Key), &c)); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	for _, a := range everyone() {
		q, err := get[Quota](m, quotaKey(a))
		if err != nil {
			m.t.Fatal(err)
		}
		sum := sums[a]
		if sum == nil {
			sum = new(Quota)
		}
		if q != nil && (q.Stored != sum.Stored || q.Coming != sum.Coming) {
			m.t.Errorf("%s stores %d and waits for %d bytes, by its charges %d and %d", a, q.Stored, q.Coming, sum.Stored, sum.Coming)
		}
	}
}

// wantWeights compares what the records of accounts are said to weigh with all of them.
func (m *machine) wantWeights(pins []Pin) {
	m.t.Helper()
	for _, a := range everyone() {
		q, err := get[Quota](m, quotaKey(a))
		if err != nil {
			m.t.Fatal(err)
		}
		if q == nil {
			continue
		}
		var sum uint64
		for i := range pins {
			if p := &pins[i]; p.Account == a {
				sum += beyondFree(joined(p.Name), joined(p.Origins...), textsInMap(p.Meta))
			}
		}
		for _, t := range []byte{tableObject, tableVersion} {
			_, objects, err := rowsIn[Object](m, t, a, part(table(t), a), 1<<20)
			if err != nil {
				m.t.Fatal(err)
			}
			for _, o := range objects {
				sum += beyondFree(joined(o.Key), textsInMap(o.Headers), textsInMap(o.Meta), textsInTags(o.Tags)) + beyondFree(8*len(o.Parts))
			}
		}
		_, uploads, err := rowsIn[Upload](m, tableUpload, a, part(table(tableUpload), a), 1<<20)
		if err != nil {
			m.t.Fatal(err)
		}
		for _, u := range uploads {
			sum += beyondFree(joined(u.Key), textsInMap(u.Headers), textsInMap(u.Meta), textsInTags(u.Tags))
		}
		if q.Records != sum {
			m.t.Errorf("the records of %s are said to weigh %d bytes, and weigh %d", a, q.Records, sum)
		}
	}
}

// beyondFree returns what a record weighs, by the words of ADR 35 and not by those of the code.
func beyondFree(texts ...int) uint64 {
	n := -1024
	for _, t := range texts {
		n += t
	}
	return uint64(max(0, n))
}

func joined(texts ...string) int { return len(strings.Join(texts, "")) }

func textsInMap(m map[string]string) (n int) {
	for k, v := range m {
		n += joined(k, v)
	}
	return n
}

func textsInTags(tags []Tag) (n int) {
	for _, t := range tags {
		n += joined(t.Key, t.Value)
	}
	return n
}

// checkAllowances compares what accounts use, once all parts of uploads that have ended
// are freed, with what they did before a command: nothing but a smaller allowance brings
// them above it.
func (m *machine) checkAllowances(before *memory, cmd Command) {
	m.t.Helper()
	if by, ok := cmd.(*Audited); ok {
		cmd = by.Change
	}
	switch cmd.(type) {
	case *SetQuota, *RaiseLevel:
		return
	}
	for _, a := range everyone() {
		q, is := m.usedInTheEnd(m.t, a)
		if q == nil || !q.exceeds(is) {
			continue
		}
		if content, size := contentOf(cmd); content > size && is <= q.Allowance+content-size {
			continue // by the nodes of its DAG, see linking.afford
		}
		then, was := before.usedInTheEnd(m.t, a)
		if then != nil && (!then.exceeds(was) || is > was) {
			m.t.Errorf("%T brought %s from %d to %d bytes of %d", cmd, a, was, is, q.Allowance)
		}
	}
}

// checkComing compares what is charged for content on its way with what was before a
// command: as long as the account holds on to it, it is charged no less.
func (m *machine) checkComing(before *memory, cmd Command) {
	m.t.Helper()
	for _, a := range everyone() {
		for _, r := range m.allRoots() {
			was, err := get[charge](before, chargeKey(a, r.Key))
			if err != nil {
				m.t.Fatal(err)
			}
			is, err := get[charge](m, chargeKey(a, r.Key))
			if err != nil {
				m.t.Fatal(err)
			}
			n, err := holdsAt(m, a, &r, 1)
			if err != nil {
				m.t.Fatal(err)
			}
			if was == nil || was.Stored || n == 0 || is != nil && (is.Stored || is.Bytes >= was.Bytes) {
				continue
			}
			m.t.Errorf("%T: %s was charged %+v for what comes of %s, and is %+v", cmd, a, was, r.Key, is)
		}
	}
}

// usedInTheEnd returns what an account will use when the parts of its uploads that have ended
// are freed.
func (m *memory) usedInTheEnd(t reporter, a AccountID) (*Quota, uint64) {
	t.Helper()
	q, err := get[Quota](m, quotaKey(a))
	if err != nil {
		t.Fatal(err)
	}
	if q == nil {
		return nil, 0
	}
	ends, err := endedIn(m, part(table(tableEnded), a), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	going := map[RootKey]int{}
	for _, u := range ends {
		parts, _, err := partsOf(m, &Bucket{Account: a, Born: u.Born}, u.ID, 0, MaxPartNumber)
		if err != nil {
			t.Fatal(err)
		}
		for i := range parts {
			going[parts[i].Root]++
		}
	}
	used := q.Used()
	for k, n := range going {
		root, err := get[Root](m, rootKey(k))
		if err != nil || root == nil {
			t.Fatalf("root %s of a part: %v, %v", k, root, err)
		}
		holds, err := holdsAt(m, a, root, n+1)
		if err != nil {
			t.Fatal(err)
		}
		c, err := get[charge](m, chargeKey(a, k))
		if err != nil {
			t.Fatal(err)
		}
		if c != nil && holds == n {
			used -= c.Bytes
		}
	}
	return q, used
}

// contentOf returns the size of the DAG that a command puts, and of its content.
func contentOf(cmd Command) (dag, size uint64) {
	switch v := cmd.(type) {
	case *PutObject:
		return v.Content.Bytes, v.Object.Size
	case *CompleteUpload:
		return v.Content.Bytes, v.Object.Size
	case *PutPart:
		return v.Content.Bytes, v.Part.Size
	}
	return 0, 0
}

// wantPin writes what a pin should have in the pin table.
func wantPin(t reporter, want *memory, p *Pin) {
	t.Helper()
	c, err := cid.Decode(p.CID)
	if err != nil {
		t.Fatal(err)
	}
	if err := put(want, rowKey(p), p); err != nil {
		t.Fatal(err)
	}
	set(t, want, locatorKey(p.Account, p.ID), binary.BigEndian.AppendUint64([]byte{byte(p.Status)}, uint64(p.Created)))
	set(t, want, cidIndex(p.Account, c).descending(p.Created), []byte(p.ID))
	if p.Name != "" {
		set(t, want, nameIndex(p.Account, p.Name).descending(p.Created), []byte(p.ID))
	}
	if p.Until > 0 {
		set(t, want, endKey(p), nil)
	}
	for level := range counterShifts {
		bump(t, want, counterKey(p.Account, p.Status, level, p.Created), 1)
	}
	bump(t, want, totalKey(p.Status), 1)
}

// wantSole writes since when members hold something alone.
func (m *machine) wantSole(want *memory) {
	m.t.Helper()
	nodes, err := m.view().Nodes()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, n := range nodes {
		sole, err := counter(m, soleKey(n.ID))
		if err != nil || sole > m.index {
			m.t.Errorf("node %s became the only holder of something in entry %d of %d, %v", n.ID, sole, m.index, err)
		}
		if sole > 0 {
			set(m.t, want, soleKey(n.ID), binary.BigEndian.AppendUint64(nil, sole))
		}
	}
}

// wantRoots writes what roots should have in their tables, and checks them
// against the pins.
func (m *machine) wantRoots(want *memory, pins []Pin, roots []Root, links map[RootKey][]AccountID) {
	m.t.Helper()
	refs := map[RootKey]uint64{}
	origins := map[RootKey][]string{}
	accounts := maps.Clone(links)
	for i := range pins {
		p := &pins[i]
		c, _ := cid.Decode(p.CID)
		k := RootOf(c)
		attached, err := has(m, attachedKey(p, k))
		if err != nil {
			m.t.Fatal(err)
		}
		if !attached {
			if p.Status != Failed {
				m.t.Errorf("pin %s is %s and holds nothing", p.ID, p.Status)
			}
			continue
		}
		refs[k]++
		accounts[k] = append(slices.Clone(accounts[k]), p.Account)
		set(m.t, want, attachedKey(p, k), nil)
		if len(p.Origins) > 0 {
			set(m.t, want, originKey(p, k), nil)
			origins[k] = append(origins[k], p.Origins...)
		}
		root, err := m.view().Root(k)
		if err != nil {
			m.t.Errorf("pin %s holds root %s: %v", p.ID, k, err)
			continue
		}
		settling, _ := has(m, settlingKey(k))
		if p.MaxBytes > 0 {
			set(m.t, want, boundedKey(p, k), nil)
			if root.Status == Pinned && !settling && root.Size > p.MaxBytes {
				m.t.Errorf("pin %s holds %d bytes, and permits %d", p.ID, root.Size, p.MaxBytes)
			}
		}
		if p.Status != root.Status && !settling && (!root.UnderReplicated || p.Status == Failed) {
			m.t.Errorf("pin %s is %s, its root is %s", p.ID, p.Status, root.Status)
		}
		if root.Status == Failed && !settling {
			m.t.Errorf("pin %s holds on to a failed root", p.ID)
		}
	}
	guards := m.wantRetained(want, roots)
	m.wantSole(want)
	m.wantOrigins(roots, origins)
	m.wantAccounts(roots, accounts)
	for i := range roots {
		r := &roots[i]
		names := uint64(len(links[r.Key]))
		public := uint64(0)
		for _, row := range m.rows(tableLink) {
			if strings.HasPrefix(row.key, string(linksOf(r.Key))) && isPublic([]byte(row.value)) {
				public++
			}
		}
		if r.Public != public {
			m.t.Errorf("root %s counts %d public links, has %d", r.Key, r.Public, public)
		}
		if r.Refs != refs[r.Key] || r.Retainers != guards[r.Key] || r.Links != names || r.Refs+r.Retainers+r.Links == 0 {
			m.t.Errorf("root %s says %d refs, %d guards and %d links, has %d, %d and %d",
				r.Key, r.Refs, r.Retainers, r.Links, refs[r.Key], guards[r.Key], names)
		}
		if r.Links > 0 && r.Status != Pinned {
			m.t.Errorf("root %s is %s, and %d objects and parts name it", r.Key, r.Status, r.Links)
		}
		if err := put(want, rootKey(r.Key), r); err != nil {
			m.t.Fatal(err)
		}
		if from, settling, _ := m.Get(settlingKey(r.Key)); settling {
			set(m.t, want, settlingKey(r.Key), from)
		}
		for _, c := range r.Copies {
			set(m.t, want, part(wantedOn(c.Node), r.Key), []byte{byte(c.Phase)})
			bump(m.t, want, wantedCount(c.Node), 1)
			if c.Phase == Held {
				bump(m.t, want, heldKey(c.Node), 1)
			}
		}
		if r.UnderReplicated && r.Status != Pinned {
			m.t.Errorf("root %s is %s, and pins are late", r.Key, r.Status)
		}
		if since, surplus, _ := m.Get(surplusKey(r.Key)); surplus {
			set(m.t, want, surplusKey(r.Key), since)
		}
		if short, _ := has(m, shortKey(r.Key)); short {
			set(m.t, want, shortKey(r.Key), nil)
			bump(m.t, want, shortCount, 1)
			if r.Status != Pinned {
				m.t.Errorf("root %s is %s and counts as short", r.Key, r.Status)
			}
		}
	}
}

// wantBeside writes what is kept of a version beside its record.
func (m *machine) wantBeside(want *memory, b *Bucket, o *Object) {
	m.t.Helper()
	if len(o.Blake3) == 0 || o.Wanted != "" {
		set(m.t, want, b.unhashedKey(o), nil)
		bump(m.t, want, unhashedCount, 1)
	}
	sums, err := m.view().PartSums(b, o)
	if err != nil || (sums == nil) == o.HasPartSums() {
		m.t.Errorf("object %q of %d parts has %v, %v", o.Key, len(o.Parts), sums, err)
	}
	if sums == nil {
		return
	}
	if err := put(want, b.partSumsKey(o), sums); err != nil {
		m.t.Fatal(err)
	}
	if parts := o.parts(); len(sums.Values) != 4*parts || sums.Of(parts) == nil || sums.Of(parts+1) != nil {
		m.t.Errorf("object %q of %d parts has checksums of %d bytes", o.Key, parts, len(sums.Values))
	}
}

func (v *Object) parts() (n int) {
	for _, r := range v.Parts {
		n += int(r.Count)
	}
	return n
}

// wantVersions writes what versions that are not current should have in their tables,
// and checks them against each other and the current ones.
func (m *machine) wantVersions(want *memory, a AccountID, buckets []Bucket, name func(*Bucket, *Object)) {
	m.t.Helper()
	of, versions, err := rowsIn[Object](m, tableVersion, a, part(table(tableVersion), a), 1<<20)
	if err != nil {
		m.t.Fatal(err)
	}
	closing, err := has(m, closingKey(a))
	if err != nil {
		m.t.Fatal(err)
	}
	for i, o := range versions {
		b := of[i]
		in := slices.IndexFunc(buckets, func(open Bucket) bool { return open.Born == b.Born })
		if in < 0 || buckets[in].Versioning == Unversioned {
			m.t.Errorf("version %s of %q in a bucket that has none", o.ID, o.Key)
		}
		current, err := findObject(m, b, o.Key)
		if err != nil {
			m.t.Fatal(err)
		}
		newest := i == 0 || of[i-1].Born != b.Born || versions[i-1].Key != o.Key
		switch {
		case current != nil && current.Created <= o.Created:
			m.t.Errorf("%s is current under %q, and %s is newer", current.ID, o.Key, o.ID)
		case current != nil && !current.Versioned && !o.Versioned:
			m.t.Errorf("%q has two null versions", o.Key)
		case current == nil && newest && !o.Marker && !closing:
			m.t.Errorf("%s is the newest under %q and not current", o.ID, o.Key)
		}
		bump(m.t, want, b.stored(storedVersions), 1)
		for _, id := range o.names() {
			row := b.versionTime(o.Key, id)
			if taken, _ := has(want, row); taken || current != nil && current.ID == id {
				m.t.Errorf("%q has two versions %s", o.Key, id)
			}
			set(m.t, want, row, binary.BigEndian.AppendUint64(nil, uint64(o.Created)))
		}
		if err := put(want, b.versionKey(o.Key, o.Created), o); err != nil {
			m.t.Fatal(err)
		}
		if o.Marker {
			continue
		}
		m.wantBeside(want, b, o)
		if o.Size > 0 {
			bump(m.t, want, b.stored(storedBytes), int(o.Size))
		}
		name(b, o)
	}
}

// wantNames writes what objects, uploads and parts should have in their tables, and
// checks them against buckets and roots. It returns the accounts that name each root,
// once for each link.
func (m *machine) wantNames(want *memory) map[RootKey][]AccountID {
	m.t.Helper()
	names := map[RootKey][]AccountID{}
	name := func(a AccountID, k RootKey, id VersionID, public bool) {
		if has, _ := has(want, linkKey(k, a, id)); has {
			m.t.Errorf("two versions %s name root %s", id, k)
		}
		set(m.t, want, linkKey(k, a, id), linkRow(public))
		names[k] = append(names[k], a)
		if !m.kept(k) {
			m.t.Errorf("version %s names root %s, which is not kept", id, k)
		}
	}
	for _, a := range everyone() {
		buckets, err := m.view().Buckets(a)
		if err != nil {
			m.t.Fatal(err)
		}
		open := map[Incarnation]string{}
		public := map[Incarnation]func(row key, l link) bool{}
		for _, b := range buckets {
			if open[b.Born] != "" {
				m.t.Errorf("buckets %s and %s are one", b.Name, open[b.Born])
			}
			open[b.Born] = b.Name
			public[b.Born] = m.wantPublic(want, &b)
		}
		of, rules, err := rowsIn[Cors](m, tableCors, a, part(table(tableCors), a), 1<<20)
		if err != nil {
			m.t.Fatal(err)
		}
		for i, c := range rules {
			closing, err := has(m, closingKey(a))
			if err != nil {
				m.t.Fatal(err)
			}
			if open[of[i].Born] == "" && !closing || len(c.Rules) == 0 {
				m.t.Errorf("%d CORS rules of bucket %q", len(c.Rules), open[of[i].Born])
			}
			if err := put(want, of[i].in(tableCors), c); err != nil {
				m.t.Fatal(err)
			}
		}
		m.wantBucketTags(want, a, open)
		of, objects, err := rowsIn[Object](m, tableObject, a, part(table(tableObject), a), 1<<20)
		if err != nil {
			m.t.Fatal(err)
		}
		for i, o := range objects {
			if open[of[i].Born] == "" {
				m.t.Errorf("object %q of no bucket", o.Key)
			}
			if err := put(want, of[i].objectKey(o.Key), o); err != nil {
				m.t.Fatal(err)
			}
			bump(m.t, want, of[i].stored(storedKeys), 1)
			bump(m.t, want, of[i].stored(storedBytes), int(o.Size))
			name(a, o.Root, o.ID, public[of[i].Born](of[i].objectKey(o.Key), link{o.Root, o.ID}))
			m.wantBeside(want, of[i], o)
		}
		m.wantVersions(want, a, buckets, func(b *Bucket, o *Object) {
			name(a, o.Root, o.ID, public[b.Born](b.versionKey(o.Key, o.Created), link{o.Root, o.ID}))
		})
		of, uploads, err := rowsIn[Upload](m, tableUpload, a, part(table(tableUpload), a), 1<<20)
		if err != nil {
			m.t.Fatal(err)
		}
		for i, u := range uploads {
			b := of[i]
			if b.Name = open[b.Born]; b.Name == "" {
				if emptying, _ := has(m, emptyingKey(a, b.Born)); !emptying {
					m.t.Errorf("upload %q of no bucket", u.Key)
				}
				at, err := get[begun](m, b.begunKey(u))
				if err != nil || at == nil {
					m.t.Fatalf("upload %s has no age: %v", u.ID, err)
				}
				b.Name = at.Bucket
			}
			if err := errors.Join(put(want, b.uploadKey(u.Key, u.ID), u), put(want, b.begunKey(u), &begun{b.Name, u.Key})); err != nil {
				m.t.Fatal(err)
			}
			set(m.t, want, b.partKey(u.ID, 0), []byte(u.Key))
			bump(m.t, want, b.stored(storedUploads), 1)
			parts, _, err := m.view().Parts(b, u.ID, 0, MaxPartNumber)
			if err != nil {
				m.t.Fatal(err)
			}
			for _, p := range parts {
				if err := put(want, b.partKey(u.ID, p.Number), &p); err != nil {
					m.t.Fatal(err)
				}
				name(a, p.Root, p.ID, false)
			}
		}
		m.wantEnded(want, a, name)
	}
	return names
}

// wantEnded writes what is left of an account's uploads that have ended.
func (m *machine) wantEnded(want *memory, a AccountID, name func(AccountID, RootKey, VersionID, bool)) {
	m.t.Helper()
	ends, err := endedIn(m, part(table(tableEnded), a), 1<<20)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, u := range ends {
		b := &Bucket{Account: a, Born: u.Born}
		mark, err := get[ended](m, b.endedKey(u.ID))
		if err != nil {
			m.t.Fatal(err)
		}
		if err := put(want, b.endedKey(u.ID), mark); err != nil {
			m.t.Fatal(err)
		}
		parts, _, err := partsOf(m, b, u.ID, 0, MaxPartNumber)
		if err != nil {
			m.t.Fatal(err)
		}
		if len(parts) == 0 || parts[0].Number <= mark.After {
			m.t.Errorf("upload %s has ended, parts to %d are freed, and it has %d others", u.ID, mark.After, len(parts))
		}
		for _, p := range parts {
			if err := put(want, b.partKey(u.ID, p.Number), &p); err != nil {
				m.t.Fatal(err)
			}
			name(a, p.Root, p.ID, false)
		}
	}
}

// wantPublic tells of a bucket's records whether their links should count as public:
// as the bucket says, but for those that a walk has not come to, which may be either.
func (m *machine) wantPublic(want *memory, b *Bucket) func(row key, l link) bool {
	m.t.Helper()
	next, turning, err := m.Get(turningKey(b.Account, b.Name))
	if err != nil {
		m.t.Fatal(err)
	}
	if turning {
		set(m.t, want, turningKey(b.Account, b.Name), next)
	}
	if b.Turning != turning {
		m.t.Errorf("bucket %q is walked through %v, there is a mark %v", b.Name, b.Turning, turning)
	}
	return func(row key, l link) bool {
		if !turning || bytes.Compare(row, next) < 0 {
			return b.Public
		}
		now, _, err := m.Get(linkKey(l.root, b.Account, l.id))
		if err != nil {
			m.t.Fatal(err)
		}
		return isPublic(now)
	}
}
