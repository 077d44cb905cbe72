package state

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	chargeStart = Millis(1_800_000_000_000)
	hour        = Millis(time.Hour / time.Millisecond)
)

// stores makes an account store so many bytes above an allowance of 0.
func (m *machine) stores(a AccountID, bytes uint64) {
	m.t.Helper()
	q := m.quota(a)
	q.Allowance, q.Stored = 0, bytes
	if err := put(m, quotaKey(a), &q); err != nil {
		m.t.Fatal(err)
	}
}

// charges returns the sum of the charges of an account, and checks that each is of a later period.
func (m *machine) charges(a AccountID) (sum uint64) {
	m.t.Helper()
	last := Millis(0)
	for _, p := range m.ledger(a) {
		if p.Kind != Charge {
			continue
		}
		if p.Made <= last {
			m.t.Errorf("%s is charged at %d after %d", a, p.Made, last)
		}
		last, sum = p.Made, sum+p.Credits
	}
	return sum
}

// Stored bytes are charged once for each period that is over, without losing fractions of a credit. Nothing is
// charged for a time with rate 0, and at most MaxChargePeriods periods are made up for. An account without enough
// credits pays what it has, and stores nothing more.
func TestStorageIsCharged(t *testing.T) {
	m := rich(t, 0)
	m.must(&PostCredits{Posting{ID: "g", Account: bob, Kind: Grant, Credits: 1000}})
	m.must(&PostCredits{Posting{ID: "storage 2027-01-15T10:00:00.000Z", Account: bob, Kind: Grant, Credits: 1}})
	charge := func(now Millis) { m.must(&ChargeStorage{Now: now, Every: hour, Rate: 7200}) } // a credit for 100 MB in an hour
	m.stores(bob, 250_000_000)
	m.must(&ChargeStorage{Now: chargeStart, Every: hour})
	if began, err := has(m, meteringKey); err != nil || began {
		t.Error("charging began with the rate 0", err)
	}
	charge(chargeStart + 5)
	charge(chargeStart + hour - 1)
	if got := m.charges(bob); got != 0 {
		t.Errorf("%d credits are charged before a period is over", got)
	}
	want := []uint64{2, 2 + 3, 2 + 3 + 2} // 2.5 credits an hour: the half is not lost
	for i, sum := range want {
		for range 3 {
			charge(chargeStart + Millis(i+1)*hour)
			charge(chargeStart) // a leader whose clock is late
		}
		if got := m.charges(bob); got != sum {
			t.Errorf("after %d hours %d credits are charged, not %d", i+1, got, sum)
		}
	}
	m.wantLedgers()

	// The cluster is down for 100 hours: the last 24 are charged.
	for range 2 * MaxChargePeriods {
		charge(chargeStart + 103*hour)
	}
	if got := m.charges(bob); got != 7+60 {
		t.Errorf("after 100 hours without a cluster %d credits are charged", got)
	}
	// Nothing is charged while the rate is 0, nor afterwards for that time.
	m.must(&ChargeStorage{Now: chargeStart + 110*hour, Every: hour})
	charge(chargeStart + 110*hour)
	if got := m.charges(bob); got != 67 {
		t.Errorf("%d credits are charged for a time without a rate", got)
	}

	// The charge takes what is left.
	m.stores(bob, 1<<62)
	charge(chargeStart + 111*hour)
	if q := m.quota(bob); q.Credits != 0 {
		t.Errorf("the account has %d credits", q.Credits)
	}
	if err := m.create(bob, "new", contents[0]); !errors.Is(err, ErrQuota) {
		t.Errorf("an account without credits stores more: %v", err)
	}
	charge(chargeStart + 112*hour)
	m.wantLedgers()
	m.must(&PostCredits{Posting{ID: "again", Account: bob, Kind: Grant, Credits: 1}})
	if err := m.create(bob, "new", contents[0]); err != nil {
		t.Errorf("after a grant: %v", err)
	}
	for _, bad := range []ChargeStorage{{Now: -1, Every: 1}, {Every: 0}, {Every: MaxChargePeriod + 1}, {Every: 1, Rate: MaxRate + 1}} {
		m.refused(&bad, ErrInvalid)
	}
	m.must(&CloseAccount{bob})
	charge(chargeStart + 113*hour) // skips it
	m.must(&ClearAccounts{[]AccountID{bob}})
	if left := m.rows(tableOwed); len(left) > 0 {
		t.Errorf("a closed account leaves %v", left)
	}
}

// Each of 239 accounts with credits is charged once for a period, although one ChargeStorage reaches at most
// MaxCharged. The rate and another account's allowance change in between.
func TestManyAccountsAreChargedOnceEach(t *testing.T) {
	m := rich(t, 0)
	const accounts = 239
	for i := range accounts {
		a := AccountID(fmt.Sprintf("account %d", i))
		m.must(&OpenAccount{Account: Account{ID: a, Email: fmt.Sprintf("a%d@example.org", i)}, Allowance: 0})
		m.must(&PostCredits{Posting{ID: "g", Account: a, Kind: Grant, Credits: 10}})
		m.stores(a, 100_000_000)
	}
	m.must(&ChargeStorage{Now: chargeStart, Every: hour, Rate: 7200})
	for i := range 4 { // the last of them finds nothing to do
		m.must(&ChargeStorage{Now: chargeStart + hour + Millis(i), Every: hour, Rate: 7200 * uint64(i+1)})
		m.must(&SetQuota{Account: bob, Allowance: uint64(i)})
	}
	for i := range accounts {
		if got := m.charges(AccountID(fmt.Sprintf("account %d", i))); got != 1 {
			t.Errorf("account %d is charged %d credits", i, got)
		}
	}
}

// After any charges by leaders whose clocks differ, an account has paid or owes exactly what it stored in the
// periods that are over. Commands are repeated, and states are restored.
func TestEachPeriodIsChargedOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := rich(rt, 0)
		const granted = 1 << 50
		bytes := rapid.Uint64Range(1, 1<<40).Draw(rt, "bytes")
		m.must(&PostCredits{Posting{ID: "g", Account: bob, Kind: Grant, Credits: granted}})
		m.stores(bob, bytes)
		every := Millis(rapid.IntRange(1, 3).Draw(rt, "hours")) * hour
		rate := rapid.Uint64Range(1, 100_000).Draw(rt, "rate")
		now := chargeStart
		m.must(&ChargeStorage{Now: now, Every: every, Rate: rate})
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			now += Millis(rapid.IntRange(0, int(every)).Draw(rt, "later"))
			skew := Millis(rapid.SampledFrom([]int{-1, 0}).Draw(rt, "skew")) * hour
			snapshot := m.rows()
			cmd := &ChargeStorage{Now: now + skew, Every: every, Rate: rate}
			m.must(cmd)
			switch rapid.IntRange(0, 3).Draw(rt, "then") {
			case 0:
				m.must(cmd) // a repeat, by another leader
			case 1:
				m.restore(snapshot) // a crash; the log is applied again
				m.must(cmd)
			}
		}
		for range 40 { // whatever is late
			m.must(&ChargeStorage{Now: now, Every: every, Rate: rate})
		}
		first := chargeStart - chargeStart%every
		sum := new(big.Int).SetUint64(bytes)
		sum.Mul(sum, big.NewInt(int64((now-first)/every*every)))
		sum.Mul(sum, new(big.Int).SetUint64(rate))
		whole, rest := sum.DivMod(sum, new(big.Int).SetUint64(chargeUnit), new(big.Int))
		owed, err := counter(m, owedKey(bob))
		if err != nil || whole.Uint64() != m.charges(bob) || rest.Uint64() != owed || m.quota(bob).Credits != granted-whole.Uint64() {
			rt.Errorf("%d credits are charged and %d owed, not %d and %d, %v", m.charges(bob), owed, whole, rest, err)
		}
		for _, p := range m.ledger(bob) {
			if p.Kind == Charge && !strings.HasPrefix(p.ID, "storage ") {
				rt.Errorf("a charge is %+v", p)
			}
		}
		m.wantLedgers()
	})
}

// One command that charges MaxCharged accounts, of 100,000, for what they store and for requests.
func BenchmarkApplyChargeStorage(b *testing.B) {
	const accounts = 100_000
	d := newOnDisk(b)
	d.apply(b, &RaiseLevel{FeatureLevel: NewestFeatureLevel})
	account := func(i int) AccountID { return AccountID(fmt.Sprintf("a%06d", i)) }
	for from := 0; from < accounts; from += 1000 {
		tx := d.store.Begin()
		for i := from; i < from+1000; i++ {
			if err := putAccount(tx, &Account{ID: account(i), Email: fmt.Sprintf("a%06d@example.org", i)}); err != nil {
				b.Fatal(err)
			}
			if err := put(tx, quotaKey(account(i)), &Quota{Stored: 1 << 30, Credits: 1 << 60, Postings: 1}); err != nil {
				b.Fatal(err)
			}
		}
		if err := tx.Commit(false); err != nil {
			b.Fatal(err)
		}
	}
	charge := &ChargeStorage{Now: chargeStart, Every: hour, Rate: 1 << 20}
	d.apply(b, charge)
	charge.Now += hour
	n := 0
	for b.Loop() {
		if n++; n%(accounts/MaxCharged) == 0 {
			charge.Now += hour
		}
		d.apply(b, charge)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n*MaxCharged), "µs/account")
}
