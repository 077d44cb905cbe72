package state

import (
	"encoding/binary"
	"fmt"
	"math/big"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Limits of charges for storage and requests.
const (
	// MaxCharged is the largest number of accounts that one ChargeStorage charges from GraceLevel
	// on; it delays other writes by about 4 ms. oldMaxCharged is the number below GraceLevel.
	MaxCharged    = 100
	oldMaxCharged = 500
	// MaxChargePeriods is the largest number of past periods that are charged. Earlier periods, in
	// which the cluster was down, are waived.
	MaxChargePeriods = 24
	// MaxChargePeriod is the longest period.
	MaxChargePeriod = 31 * dayMillis
	// MaxRate is the largest price of a GB-month, and of a million requests, in credits.
	MaxRate = 1_000_000_000_000
	// requestsOfPrice is the number of requests to which the price of requests applies. It
	// divides chargeUnit.
	requestsOfPrice = 1_000_000
	// chargeUnit is the divisor that converts bytes * milliseconds * credits per GB-month to
	// credits. A gigabyte has 1,000,000,000 bytes, and a month 30 days. It is below 2^63.
	chargeUnit = 1_000_000_000 * 30 * uint64(dayMillis)
)

// metering is the record of how far accounts have been charged.
type metering struct {
	Charged Millis    // all periods before this time are charged or waived
	Every   Millis    // length of the period that is being charged; 0 between periods
	Rate    uint64    // credits for a GB-month in that period
	After   AccountID // accounts with ids up to this one are charged for that period

	// The following fields need GraceLevel.

	// Requests is the price of a million requests in the current period, or in the last one if
	// none is being charged. If it is above 0, nodes count requests for the next period.
	Requests uint64
	// Since is the time (Now of a command) at which periods were last waived. The grace period of
	// a dry account never begins earlier. 0 means never.
	Since Millis
}

// Code encodes or decodes the record. Version 1 is that of levels below GraceLevel.
func (v *metering) Code(c *codec.Coder) {
	version := uint64(2)
	if !c.Decoding() && v.Requests == 0 && v.Since == 0 {
		version = 1
	}
	version = c.Version(version)
	codec.Int(c, &v.Charged)
	codec.Int(c, &v.Every)
	codec.Uint(c, &v.Rate)
	codec.String(c, &v.After, MaxIDLen)
	if version >= 2 {
		codec.Uint(c, &v.Requests)
		codec.Int(c, &v.Since)
	}
}

var meteringKey = metaKey("metering")

func owedKey(a AccountID) key { return part(table(tableOwed), a) }

// ChargeStorage charges accounts for the bytes that they store above their allowance, and for
// their requests, in periods of fixed length. Each command charges the next MaxCharged accounts
// for the oldest period that is not charged yet; so a repeated command never charges an account
// twice for a period. The first command ever only starts the periods. A period has the length and
// the prices of the first command that charges it. A command with prices of 0 waives past
// periods. The command needs feature level LedgerLevel, and GraceLevel if requests have a price.
//
// A balance never becomes negative: a charge takes at most the remaining credits, and the rest is
// waived. From GraceLevel on, the account then becomes dry, see EndContent.
//
// Errors: ErrInvalid.
type ChargeStorage struct {
	Now      Millis // time that most members' clocks have reached
	Every    Millis // length of a period
	Rate     uint64 // credits for a GB-month
	Requests uint64 // credits for a million requests
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *ChargeStorage) Code(c *codec.Coder) {
	codec.Int(c, &v.Now)
	codec.Int(c, &v.Every)
	codec.Uint(c, &v.Rate)
	if v.Requests > 0 || c.Decoding() && c.More() {
		codec.Uint(c, &v.Requests)
	}
}

func (v *ChargeStorage) apply(tx Tx, e *entry) (Result, error) {
	if v.Now < 0 || v.Every <= 0 || v.Every > MaxChargePeriod || v.Rate > MaxRate || v.Requests > MaxRate {
		return Result{}, Errorf(CodeInvalid, "a period or a rate that is out of bounds")
	}
	level, err := levelOf(tx)
	if err != nil {
		return Result{}, err
	}
	if need := v.level(); level < need {
		return Result{}, Errorf(CodeUnavailable, "these charges need feature level %d", need)
	}
	m, err := get[metering](tx, meteringKey)
	if err != nil || !m.due(v) {
		return Result{}, err
	}
	switch {
	case m == nil:
		m = &metering{Charged: v.Now - v.Now%v.Every, Requests: v.Requests}
	case m.Every == 0 && v.free():
		m.Charged += m.over(v) * v.Every
		m.waived(v.Now, level)
		m.Requests = 0
	default:
		if m.Every == 0 {
			if waived := m.over(v) - MaxChargePeriods; waived > 0 {
				m.Charged += waived * v.Every
				m.waived(v.Now, level)
			}
			m.Every, m.Rate, m.Requests = v.Every, v.Rate, v.Requests
		}
		if err := m.charge(tx, v.Now, level, e); err != nil {
			return Result{}, err
		}
	}
	return Result{}, put(tx, meteringKey, m)
}

// level returns the lowest feature level of the command.
func (v *ChargeStorage) level() FeatureLevel {
	if v.Requests > 0 {
		return GraceLevel
	}
	return LedgerLevel
}

// free returns whether neither storage nor requests have a price.
func (v *ChargeStorage) free() bool { return v.Rate == 0 && v.Requests == 0 }

// waived records now as the time at which periods were waived.
func (v *metering) waived(now Millis, level FeatureLevel) {
	if level >= GraceLevel {
		v.Since = max(v.Since, now)
	}
}

// due returns whether a command would change anything. v is nil before the first command.
func (v *metering) due(c *ChargeStorage) bool {
	if v == nil {
		return !c.free()
	}
	return v.Every > 0 || v.over(c) > 0
}

// over returns the number of periods that have ended and are not charged.
func (v *metering) over(c *ChargeStorage) Millis { return max(0, c.Now-v.Charged) / c.Every }

// charge charges the next accounts for the current period, and ends the period after the last
// account. now is the time of the command.
func (v *metering) charge(tx Tx, now Millis, level FeatureLevel, e *entry) error {
	from, all := table(tableQuota), table(tableQuota)
	if v.After != "" {
		from = append(quotaKey(v.After), 0)
	}
	type row struct {
		account AccountID
		quota   *Quota
	}
	var rows []row
	most := MaxCharged
	if level < GraceLevel {
		most = oldMaxCharged
	}
	err := tx.Scan(from, all.end(), false, func(k, value []byte) (bool, error) {
		account, _, err := readPart[AccountID](k[len(all):])
		if err != nil {
			return false, err
		}
		q, err := decode[Quota](value)
		rows = append(rows, row{account, q})
		return err == nil && len(rows) < most, err
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		if err := v.chargeAccount(tx, r.account, r.quota, now, level, e); err != nil {
			return err
		}
	}
	if len(rows) == most {
		v.After = rows[len(rows)-1].account
		return nil
	}
	v.Charged, v.Every, v.Rate, v.After = v.Charged+v.Every, 0, 0, ""
	return nil
}

// chargeAccount charges one account for the current period, and updates whether it is dry. A
// remaining fraction of a credit is stored and added to the next charge.
func (v *metering) chargeAccount(tx Tx, a AccountID, q *Quota, now Millis, level FeatureLevel, e *entry) error {
	var requests uint64
	if level >= GraceLevel {
		var err error
		if requests, err = v.takeRequests(tx, a); err != nil {
			return err
		}
	}
	if q.Credits == 0 && level >= GraceLevel {
		return noteDry(tx, a, q, now)
	}
	above := q.Used() - min(q.Used(), q.Allowance)
	if v.Rate == 0 {
		above = 0 // only requests have a price
	}
	if q.Credits == 0 || above == 0 && requests == 0 || q.Postings >= MaxPostings {
		return nil
	}
	if open, err := has(tx, accountKey(a)); err != nil || !open {
		return err
	}
	owed, err := counter(tx, owedKey(a))
	if err != nil {
		return err
	}
	whole, rest := v.sum(above, requests, owed)
	if err := tx.Set(owedKey(a), binary.BigEndian.AppendUint64(nil, rest)); err != nil {
		return err
	}
	credits := q.Credits
	if whole.IsUint64() && whole.Uint64() <= credits {
		credits = whole.Uint64()
	} else if level >= GraceLevel {
		if err := noteDry(tx, a, q, now); err != nil {
			return err
		}
	}
	if credits == 0 {
		return nil
	}
	return v.post(tx, a, q, credits, above, requests, e)
}

// sum returns the credits to charge for the bytes above the allowance, the requests and the
// fraction owed from before, in chargeUnits. rest is the new fraction.
func (v *metering) sum(above, requests, owed uint64) (whole *big.Int, rest uint64) {
	product := func(factors ...uint64) *big.Int {
		p := big.NewInt(1)
		for _, f := range factors {
			p.Mul(p, new(big.Int).SetUint64(f))
		}
		return p
	}
	sum := product(above, uint64(v.Every), v.Rate)
	sum.Add(sum, product(requests, v.Requests, chargeUnit/requestsOfPrice))
	sum.Add(sum, product(owed))
	whole, left := sum.DivMod(sum, product(chargeUnit), new(big.Int))
	return whole, left.Uint64()
}

// post adds the charge of a period to the ledger of an account.
func (v *metering) post(tx Tx, a AccountID, q *Quota, credits, above, requests uint64, e *entry) error {
	end := v.Charged + v.Every
	what, note := "storage", ""
	if above == 0 {
		what = "requests"
	} else {
		note = fmt.Sprintf("%d bytes above the allowance", above)
	}
	if requests > 0 {
		note = withComma(note, fmt.Sprintf("%d requests", requests))
	}
	p := &Posting{
		ID: what + " " + end.Time().Format("2006-01-02T15:04:05.000Z07:00"), Account: a, Kind: Charge, Credits: credits, Takes: true, Made: end, Note: note,
	}
	for taken := true; taken; { // an operator may have chosen the same id
		var err error
		if taken, err = has(tx, postingKey(a, p.ID)); err != nil {
			return err
		} else if taken {
			p.ID += "+"
		}
	}
	return enter(tx, p, q, e)
}

func requestsKey(a AccountID) key { return part(table(tableRequests), a) }

// takeRequests returns the number of an account's requests that are not charged yet, and resets
// the counter. It returns 0 if requests have no price.
func (v *metering) takeRequests(tx Tx, a AccountID) (uint64, error) {
	n, err := counter(tx, requestsKey(a))
	if err != nil || n == 0 {
		return 0, err
	}
	if v.Requests == 0 {
		n = 0
	}
	return n, tx.Delete(requestsKey(a))
}

// requestsPriced returns whether requests have a price.
func requestsPriced(r Reader) (bool, error) {
	m, err := get[metering](r, meteringKey)
	return m != nil && m.Requests > 0, err
}

// countRequests adds n to the number of requests that the next charge includes.
func countRequests(tx Tx, a AccountID, n uint64) error {
	old, err := counter(tx, requestsKey(a))
	if err != nil {
		return err
	}
	return tx.Set(requestsKey(a), binary.BigEndian.AppendUint64(nil, addBounded(old, n)))
}

// ChargeDue returns whether the command c would change anything now.
func (v View) ChargeDue(c ChargeStorage) (bool, error) {
	m, err := get[metering](v.r, meteringKey)
	if err != nil {
		return false, err
	}
	return m.due(&c), nil
}
