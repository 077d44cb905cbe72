package state

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Limits of the recorded usage of accounts.
const (
	MaxUsage  = 1000 // accounts of one NoteUsage
	UsageDays = 90   // days for which usage is kept
	maxDay    = 1 << 24
)

// Day is a number of days since 1970-01-01, in UTC.
type Day uint32

// dayMillis is how long a day is.
const dayMillis = Millis(24 * time.Hour / time.Millisecond)

// DayOf returns the day of a time.
func DayOf(t Millis) Day { return Day(max(t, 0) / dayMillis) }

// Time returns the beginning of the day.
func (d Day) Time() time.Time { return (Millis(d) * dayMillis).Time() }

// Usage is what an account used on a day.
type Usage struct {
	Day      Day
	Stored   uint64 // bytes counted against the allowance when usage was last recorded on that day
	Requests uint64 // requests of the account to all nodes
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *Usage) Code(c *codec.Coder) {
	c.Version(1)
	codec.Uint(c, &v.Day)
	codec.Uint(c, &v.Stored)
	codec.Uint(c, &v.Requests)
}

func usageOf(a AccountID) key { return part(table(tableUsage), a) }

func usageKey(a AccountID, d Day) key { return usageOf(a).u64(uint64(d)) }

// AccountRequests is the number of requests of an account since the previous NoteUsage of the
// node.
type AccountRequests struct {
	Account AccountID
	Count   uint64
}

// NoteUsage adds numbers of requests to the usage of accounts on a day, and records how much each
// of them stores. It skips accounts that no longer exist, and removes records that are older than
// UsageDays. The command needs feature level 6, and GraceLevel if Node is set.
//
// If Node is set, the requests also count for the next charge, see ChargeStorage. A node numbers
// its commands upwards. If the Number is not above that of the node's last command, nothing
// changes, so that a repeat never counts a request twice.
//
// Errors: ErrInvalid for a day that is out of bounds.
type NoteUsage struct {
	Day    Day
	Items  []AccountRequests
	Node   NodeID // the node that counted; empty below GraceLevel
	Number uint64
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *NoteUsage) Code(c *codec.Coder) {
	codec.Uint(c, &v.Day)
	codec.List(c, &v.Items, MaxUsage, func(c *codec.Coder, i *AccountRequests) {
		codec.String(c, &i.Account, MaxIDLen)
		codec.Uint(c, &i.Count)
	})
	if v.Node != "" || c.Decoding() && c.More() {
		codec.String(c, &v.Node, MaxIDLen)
		codec.Uint(c, &v.Number)
	}
}

func (v *NoteUsage) apply(tx Tx, _ *entry) (Result, error) {
	if v.Day > maxDay {
		return Result{}, Errorf(CodeInvalid, "day %d is out of bounds", v.Day)
	}
	if v.Node != "" {
		if fresh, err := v.number(tx); err != nil || !fresh {
			return Result{}, err
		}
	}
	view, counts := View{r: tx}, false
	if v.Node != "" {
		var err error
		if counts, err = requestsPriced(tx); err != nil {
			return Result{}, err
		}
	}
	for _, i := range v.Items {
		if there, err := has(tx, accountKey(i.Account)); err != nil {
			return Result{}, err
		} else if !there {
			continue
		}
		quota, err := view.Quota(i.Account)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return Result{}, err
		}
		k := usageKey(i.Account, v.Day)
		row, err := get[Usage](tx, k)
		if err != nil {
			return Result{}, err
		}
		if row == nil {
			row = &Usage{Day: v.Day}
			if err := removeUsage(tx, i.Account, v.Day); err != nil {
				return Result{}, err
			}
		}
		row.Stored, row.Requests = quota.Used(), row.Requests+i.Count
		if err := put(tx, k, row); err != nil {
			return Result{}, err
		}
		if !counts {
			continue
		}
		if err := countRequests(tx, i.Account, i.Count); err != nil {
			return Result{}, err
		}
	}
	return Result{}, nil
}

func countedKey(id NodeID) key { return part(table(tableCounted), id) }

// number records the Number of the command for its node. It returns false if the command must be
// ignored: its number is not above the last one, or the node is not a member.
func (v *NoteUsage) number(tx Tx) (fresh bool, err error) {
	if err := needsLevel(tx, GraceLevel, "counts of a node need feature level %d"); err != nil {
		return false, err
	}
	last, err := counter(tx, countedKey(v.Node))
	if err != nil || v.Number <= last {
		return false, err
	}
	if member, err := has(tx, nodeKey(v.Node)); err != nil || !member {
		return false, err
	}
	return true, tx.Set(countedKey(v.Node), binary.BigEndian.AppendUint64(nil, v.Number))
}

// Counted returns the Number of a node's last NoteUsage that was applied.
func (v View) Counted(id NodeID) (uint64, error) { return counter(v.r, countedKey(id)) }

// removeUsage removes the usage records of an account that are UsageDays or more older than the day in
// the parameter before.
func removeUsage(tx Tx, a AccountID, before Day) error {
	all, err := (View{r: tx}).Usage(a, 0)
	if err != nil {
		return err
	}
	for _, u := range all {
		if u.Day+UsageDays > before {
			break
		}
		if err := tx.Delete(usageKey(a, u.Day)); err != nil {
			return err
		}
	}
	return nil
}

// Usage returns the usage of an account from the day since on, oldest day first. Days without
// requests have no record.
func (v View) Usage(a AccountID, since Day) (all []Usage, err error) {
	err = v.r.Scan(usageKey(a, since), usageOf(a).end(), false, func(_, value []byte) (bool, error) {
		u, err := decode[Usage](value)
		if err == nil {
			all = append(all, *u)
		}
		return err == nil, err
	})
	return all, err
}
