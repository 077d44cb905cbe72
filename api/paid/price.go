package paid

import (
	"math/big"
	"time"
)

// byteSeconds is the product of the bytes of 1 MiB and the seconds of 1 hour, the unit of
// PriceMiBHour.
const byteSeconds = (1 << 20) * 3600

// Price returns the price for storing bytes for ttl, in atomic units of the asset. It rounds ttl
// up to whole seconds and the price up to whole units, and returns at least Minimum. copies
// multiplies the price only if PerCopy is set.
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

// secondsOf converts d to seconds, rounded up.
func secondsOf(d time.Duration) int64 {
	return int64(d/time.Second) + min(int64(d%time.Second), 1)
}

// Inputs of validSeconds.
const (
	payTime     = 300     // seconds for the client to sign and to send the request
	slowestBody = 1 << 19 // assumed lowest rate of an upload, in bytes per second
)

// validSeconds returns for how many seconds a client should make its signed payment valid, for an
// upload of so many bytes. The node settles the payment after the upload, so a larger body needs
// a longer validity.
func validSeconds(bytes int64) int64 { return payTime + max(bytes, 0)/slowestBody }
