package state

import (
	"encoding/binary"
	"fmt"
	"math/big"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Bounds of charges for storage.
const (
	// MaxCharged is the largest number of accounts that one ChargeStorage charges.
	MaxCharged = 500
	// MaxChargePeriods is the largest number of past periods that are charged. Earlier periods, in
	// which the cluster was down, are waived.
	MaxChargePeriods = 24
	// MaxChargePeriod is the longest period.
	MaxChargePeriod = 31 * dayMillis
	// MaxRate is the largest price of a GB-month in credits.
	MaxRate = 1_000_000_000_000
	// chargeUnit divides bytes times milliseconds times credits for a GB-month: a gigabyte has
	// 1,000,000,000 bytes, and a month 30 days. It is below 2^63.
	chargeUnit = 1_000_000_000 * 30 * uint64(dayMillis)
)

// metering is the progress of charges for storage.
type metering struct {
	Charged Millis    // all earlier periods are charged or waived
	Every   Millis    // length of the period that is being charged; 0 between periods
	Rate    uint64    // credits for a GB-month in that period
	After   AccountID // accounts up to this one are charged for that period
}

// Code implements the record's form.
func (v *metering) Code(c *codec.Coder) {
	c.Version(1)
	codec.Int(c, &v.Charged)
	codec.Int(c, &v.Every)
	codec.Uint(c, &v.Rate)
	codec.String(c, &v.After, MaxIDLen)
}

var meteringKey = metaKey("metering")

func owedKey(a AccountID) key { return part(table(tableOwed), a) }

// ChargeStorage charges accounts for what they store above their allowance, in fixed periods. Each
// command charges the next MaxCharged accounts for the oldest period that is not charged, so a
// repeat never charges an account twice for a period. The first command begins the periods and
// charges nothing. A period keeps the length and the rate that its first command has. Rate 0 waives
// the periods that are over. The command needs feature level LedgerLevel.
//
// A balance never falls below zero: the charge takes what is left, and the rest is waived.
//
// Errors: ErrInvalid.
type ChargeStorage struct {
	Now   Millis // a time that most members have reached
	Every Millis // length of a period
	Rate  uint64 // credits for a GB-month
}

// Code implements Command.
func (v *ChargeStorage) Code(c *codec.Coder) {
	codec.Int(c, &v.Now)
	codec.Int(c, &v.Every)
	codec.Uint(c, &v.Rate)
}

func (v *ChargeStorage) apply(tx Tx, e *entry) (Result, error) {
	if v.Now < 0 || v.Every <= 0 || v.Every > MaxChargePeriod || v.Rate > MaxRate {
		return Result{}, Errorf(CodeInvalid, "a period or a rate that is out of bounds")
	}
	if level, err := levelOf(tx); err != nil {
		return Result{}, err
	} else if level < LedgerLevel {
		return Result{}, Errorf(CodeUnavailable, "charges need feature level %d", LedgerLevel)
	}
	m, err := get[metering](tx, meteringKey)
	if err != nil || !m.due(v) {
		return Result{}, err
	}
	switch {
	case m == nil:
		m = &metering{Charged: v.Now - v.Now%v.Every}
	case m.Every == 0 && v.Rate == 0:
		m.Charged += m.over(v) * v.Every
	default:
		if m.Every == 0 {
			m.Charged += max(0, m.over(v)-MaxChargePeriods) * v.Every
			m.Every, m.Rate = v.Every, v.Rate
		}
		if err := m.charge(tx, e); err != nil {
			return Result{}, err
		}
	}
	return Result{}, put(tx, meteringKey, m)
}

// due returns whether a command changes anything.
func (v *metering) due(c *ChargeStorage) bool {
	if v == nil {
		return c.Rate > 0
	}
	return v.Every > 0 || v.over(c) > 0
}

// over returns the number of periods that are over and not charged.
func (v *metering) over(c *ChargeStorage) Millis { return max(0, c.Now-v.Charged) / c.Every }

// charge charges the next accounts, and ends the period after the last one.
func (v *metering) charge(tx Tx, e *entry) error {
	from, all := table(tableQuota), table(tableQuota)
	if v.After != "" {
		from = append(quotaKey(v.After), 0)
	}
	type row struct {
		account AccountID
		quota   *Quota
	}
	var rows []row
	err := tx.Scan(from, all.end(), false, func(k, value []byte) (bool, error) {
		account, _, err := readPart[AccountID](k[len(all):])
		if err != nil {
			return false, err
		}
		q, err := decode[Quota](value)
		rows = append(rows, row{account, q})
		return err == nil && len(rows) < MaxCharged, err
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		if err := v.chargeAccount(tx, r.account, r.quota, e); err != nil {
			return err
		}
	}
	if len(rows) == MaxCharged {
		v.After = rows[len(rows)-1].account
		return nil
	}
	v.Charged, v.Every, v.Rate, v.After = v.Charged+v.Every, 0, 0, ""
	return nil
}

// chargeAccount charges an account for the period. The fraction of a credit that is left is added to
// the charge of the next period.
func (v *metering) chargeAccount(tx Tx, a AccountID, q *Quota, e *entry) error {
	if q.Credits == 0 || q.Used() <= q.Allowance || q.Postings >= MaxPostings {
		return nil
	}
	if open, err := has(tx, accountKey(a)); err != nil || !open {
		return err
	}
	owed, err := counter(tx, owedKey(a))
	if err != nil {
		return err
	}
	above := q.Used() - q.Allowance
	sum := new(big.Int).SetUint64(above)
	sum.Mul(sum, big.NewInt(int64(v.Every)))
	sum.Mul(sum, new(big.Int).SetUint64(v.Rate))
	sum.Add(sum, new(big.Int).SetUint64(owed))
	whole, rest := sum.DivMod(sum, new(big.Int).SetUint64(chargeUnit), new(big.Int))
	if err := tx.Set(owedKey(a), binary.BigEndian.AppendUint64(nil, rest.Uint64())); err != nil {
		return err
	}
	credits := q.Credits
	if whole.IsUint64() {
		credits = min(credits, whole.Uint64())
	}
	if credits == 0 {
		return nil
	}
	end := v.Charged + v.Every
	p := &Posting{
		ID: "storage " + end.Time().Format("2006-01-02T15:04:05.000Z07:00"), Account: a, Kind: Charge, Credits: credits, Takes: true, Made: end,
		Note: fmt.Sprintf("%d bytes above the allowance", above),
	}
	for taken := true; taken; { // an operator may have chosen the same id
		if taken, err = has(tx, postingKey(a, p.ID)); err != nil {
			return err
		} else if taken {
			p.ID += "+"
		}
	}
	return enter(tx, p, q, e)
}

// ChargeDue returns whether a ChargeStorage changes anything now.
func (v View) ChargeDue(c ChargeStorage) (bool, error) {
	m, err := get[metering](v.r, meteringKey)
	if err != nil {
		return false, err
	}
	return m.due(&c), nil
}
