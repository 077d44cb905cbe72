package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

const (
	bookkeepers = 2
	// chargedEvery is the period of charges. 24 periods, the most that are charged late, take longer than any fault.
	chargedEvery = 2 * time.Second
	// owedBytes is what the debtor stores. A period costs about 50 credits.
	owedBytes = 64 << 10
	// granted is what the debtor can pay in any run.
	granted = 1 << 40
	// chargedLate is how long a period may stay without its charge when nothing is wrong any more.
	chargedLate = 5 * time.Second
)

// booked are the accounts of the ledger: the debtor stores content above its allowance, and is charged. The
// other one has few credits.
var booked = [...]string{"debtor@example.org", "poor@example.org"}

// order is a posting that a bookkeeper has asked for.
type order struct {
	account state.AccountID
	request credits.Request
	made    bool // a node said that the ledger has the posting
	unknown bool // a node gave no answer, so that the posting may be made at any time
}

// books is what all bookkeepers have asked for.
type books struct {
	accounts [len(booked)]state.AccountID

	// mu guards the fields below.
	mu     sync.Mutex
	orders map[string]*order // by the id of the posting
}

// open makes the accounts and the content of the debtor.
func (b *books) open(ctx context.Context, l *life, kept *library) error {
	b.orders = map[string]*order{}
	for i, email := range booked {
		a, err := l.Accounts().CreateAccount(ctx, email, "")
		if err != nil {
			return err
		}
		b.accounts[i] = a.ID
		if err := l.Accounts().SetAllowance(ctx, email, 0); err != nil {
			return err
		}
		first := order{account: a.ID, request: credits.Request{Kind: state.Grant, Credits: 20, ID: "first " + email}, made: true}
		if i == 0 {
			first.request.Credits = granted
		}
		if _, err := l.Ledger().Post(ctx, email, first.request); err != nil {
			return err
		}
		b.orders[first.request.ID] = &first
	}
	owed := bytes.Repeat([]byte("owed"), owedBytes/4)
	root, _, err := l.Content().Add(ctx, bytes.NewReader(owed), content.Layout{})
	if err != nil {
		return err
	}
	kept.keep(root.String(), owed)
	_, err = l.Pins().Create(ctx, b.accounts[0], pins.Request{CID: root.String(), Name: "owed"})
	return err
}

// bookkeeper asks for one posting after the other, of any node, and for some of them again.
type bookkeeper struct {
	number  int
	rng     *rand.Rand
	books   *books
	cluster *cluster
	asked   int
	// unexpected gets what no bookkeeper should be told.
	unexpected func(error)
}

// run asks until ctx ends.
func (k *bookkeeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		o := k.next()
		for range 1 + k.rng.IntN(2) { // half of them twice
			k.send(o, k.cluster.members[k.rng.IntN(len(k.cluster.members))])
		}
		harness.Pause(ctx, time.Duration(k.rng.Int64N(int64(2*thinking))))
	}
}

// next returns what to ask for next.
func (k *bookkeeper) next() *order {
	k.asked++
	i := k.rng.IntN(len(booked))
	o := &order{account: k.books.accounts[i], request: credits.Request{
		Kind: state.Grant, Credits: 1 + k.rng.Int64N(5), ID: fmt.Sprintf("%d-%d", k.number, k.asked),
	}}
	switch k.rng.IntN(4) {
	case 0:
		o.request.Kind = state.Refund
	case 1, 2: // takes more than is there, now and then
		o.request.Kind, o.request.Corrects, o.request.Credits = state.Correction, "first "+booked[i], 2-k.rng.Int64N(12)
		if o.request.Credits >= 0 {
			o.request.Credits++
		}
	}
	k.books.mu.Lock()
	defer k.books.mu.Unlock()
	k.books.orders[o.request.ID] = o
	return o
}

// send asks a node for a posting.
func (k *bookkeeper) send(o *order, at *member) {
	l := at.call()
	if l == nil {
		return // nobody answers
	}
	defer l.calls.Done()
	call, cancel := context.WithTimeout(l.ctx, maxPatience)
	defer cancel()
	p, err := l.Ledger().Post(call, string(o.account), o.request)
	k.books.mu.Lock()
	defer k.books.mu.Unlock()
	switch {
	case l.crashed.Load(): // the answer was never sent
		o.unknown = true
	case err == nil:
		o.made = true
		if err := o.is(&p); err != nil {
			k.unexpected(err)
		}
	case errors.Is(err, state.ErrCredits):
		if o.made {
			k.unexpected(fmt.Errorf("posting %s was made, and is refused: %w", o.request.ID, err))
		}
	case errors.Is(err, state.ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, state.ErrNoSpace):
		o.unknown = true
	default:
		k.unexpected(fmt.Errorf("bookkeeper %d at node %d: %w", k.number, at.number+1, err))
	}
}

// is returns an error if a row of the ledger is not the posting that was asked for.
func (o *order) is(p *state.Posting) error {
	if p.Account != o.account || p.Kind != o.request.Kind || p.Corrects != o.request.Corrects || p.Signed() != fmt.Sprint(o.request.Credits) {
		return fmt.Errorf("posting %+v was asked for, and %+v is in the ledger", o.request, *p)
	}
	return nil
}

// charged returns whether the debtor is charged for all periods that are over, as a node shows it.
func (b *books) charged(ctx context.Context, l *life) bool {
	rows, err := ledgerOf(func(before uint64) ([]state.Posting, error) {
		call, cancel := context.WithTimeout(ctx, maxPatience)
		defer cancel()
		page, err := l.Ledger().List(call, booked[0], before, credits.MaxLimit)
		return page.Rows, err
	})
	at := slices.IndexFunc(rows, func(p state.Posting) bool { return p.Kind == state.Charge })
	return err == nil && at >= 0 && rows[at].Made.Time().Add(chargedEvery+chargedLate).After(time.Now())
}

// ledgerOf returns all rows of a ledger, newest first. page returns those below a sequence, or the newest for 0.
func ledgerOf(page func(before uint64) ([]state.Posting, error)) (all []state.Posting, err error) {
	for before := uint64(0); ; before = all[len(all)-1].Seq {
		rows, err := page(before)
		if err != nil || len(rows) == 0 {
			return all, err
		}
		all = append(all, rows...)
	}
}

// check checks the ledgers in the state of a node after the run: the sum of the postings is the balance, the
// ledger has what was asked for, each once, and the debtor is charged for each period once.
func (b *books) check(s state.View, got *report) error {
	for i, account := range b.accounts {
		rows, err := ledgerOf(func(before uint64) ([]state.Posting, error) { return s.Ledger(account, before, credits.MaxLimit) })
		if err != nil {
			return err
		}
		slices.Reverse(rows)
		quota, err := s.Quota(account)
		if err != nil {
			return err
		}
		err = errors.Join(checkSums(rows, quota.Credits), b.checkOrders(rows, account), checkCharges(rows))
		if err != nil {
			return fmt.Errorf("ledger of %s: %w", booked[i], err)
		}
		got.Postings += len(rows)
		for _, p := range rows {
			if p.Kind == state.Charge {
				got.Charges++
			}
		}
	}
	return nil
}

// checkSums checks that each row, oldest first, has the sum of all rows up to it, and that the last sum is the
// balance.
func checkSums(rows []state.Posting, balance uint64) error {
	sum := uint64(0)
	for i, p := range rows {
		if p.Takes && p.Credits > sum {
			return fmt.Errorf("posting %s takes %d of %d credits", p.ID, p.Credits, sum)
		}
		if sum += p.Credits; p.Takes {
			sum -= 2 * p.Credits
		}
		if p.Balance != sum || p.Seq != uint64(i+1) {
			return fmt.Errorf("posting %d of the ledger is %+v, and the sum is %d", i+1, p, sum)
		}
	}
	if sum != balance {
		return fmt.Errorf("the postings sum up to %d credits, and the balance is %d", sum, balance)
	}
	return nil
}

// checkOrders checks the rows of an account that are no charges: the ledger has each posting of which a node
// said so, and none that was refused or that nobody has asked for.
func (b *books) checkOrders(rows []state.Posting, account state.AccountID) error {
	found := map[string]bool{}
	for _, p := range rows {
		if p.Kind == state.Charge {
			continue
		}
		o := b.orders[p.ID]
		switch {
		case o == nil || found[p.ID]:
			return fmt.Errorf("posting %s is there twice, or nobody has asked for it", p.ID)
		case !o.made && !o.unknown:
			return fmt.Errorf("posting %s was refused, and is there", p.ID)
		}
		if err := o.is(&p); err != nil {
			return err
		}
		found[p.ID] = true
	}
	for id, o := range b.orders {
		if o.account == account && o.made && !found[id] {
			return fmt.Errorf("posting %s was made, and is not there", id)
		}
	}
	return nil
}

// creditUnit divides bytes times milliseconds times credits for a gigabyte in 30 days.
const creditUnit = 1_000_000_000 * 30 * 24 * 3600 * 1000

// checkCharges checks that charges are of one period after the other, without a gap, and that their sum is the
// price of the bytes that they name.
func checkCharges(rows []state.Posting) error {
	owed, paid := new(big.Int), new(big.Int)
	last := state.Millis(0)
	for _, p := range rows {
		if p.Kind != state.Charge {
			continue
		}
		period := state.Millis(chargedEvery.Milliseconds())
		if p.Made%period != 0 || last != 0 && p.Made != last+period {
			return fmt.Errorf("the period to %s is charged after that to %s", p.Made.Time().UTC(), last.Time().UTC())
		}
		last = p.Made
		var stored int64
		if _, err := fmt.Sscanf(p.Note, "%d bytes above the allowance", &stored); err != nil {
			return fmt.Errorf("the note %q of a charge: %w", p.Note, err)
		}
		price := big.NewInt(stored)
		owed.Add(owed, price.Mul(price.Mul(price, big.NewInt(int64(period))), big.NewInt(state.MaxRate)))
		paid.Add(paid, new(big.Int).SetUint64(p.Credits))
		if want := new(big.Int).Quo(owed, big.NewInt(creditUnit)); want.Cmp(paid) != 0 {
			return fmt.Errorf("%s credits are charged up to %s, and %s are due", paid, last.Time().UTC(), want)
		}
	}
	return nil
}
