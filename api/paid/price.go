package paid

import (
	"math/big"
	"time"
)

// byteSeconds is the number of bytes times seconds of one MiB for one hour.
const byteSeconds = (1 << 20) * 3600

// Price returns the price of so many bytes of content for a time, in atomic units of the asset,
// rounded up and at least Minimum. The time counts in whole seconds, rounded up. copies counts only
// with PerCopy.
func (t *Terms) Price(bytes int64, ttl time.Duration, copies int) *big.Int {
	price := big.NewInt(max(bytes, 0))
	price.Mul(price, big.NewInt(secondsOf(ttl)))
	price.Mul(price, big.NewInt(max(t.PriceMiBHour, 0)))
	if t.PerCopy {
		price.Mul(price, big.NewInt(int64(max(copies, 1))))
	}
	price.Add(price, big.NewInt(byteSeconds-1))
	price.Quo(price, big.NewInt(byteSeconds))
	if least := big.NewInt(t.Minimum); price.Cmp(least) < 0 {
		return least
	}
	return price
}

// secondsOf returns a time in seconds, rounded up.
func secondsOf(d time.Duration) int64 {
	return int64(d/time.Second) + min(int64(d%time.Second), 1)
}

// Bounds of the time for which a signed payment is valid.
const (
	payTime     = 300     // seconds that a client has at least
	slowestBody = 1 << 19 // bytes per second of a body that is paid for
)

// validSeconds returns for how many seconds a client should sign a payment for a body: the payment is
// settled after the body has arrived.
func validSeconds(bytes int64) int64 { return payTime + max(bytes, 0)/slowestBody }
