package tracker

import (
	"container/heap"
	"container/list"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// line is one of the two FIFO queues of an account in which its roots wait for a slot.
type line uint8

const (
	fresh   line = iota // new pins
	backlog             // repairs, retries and roots that an audit has found
	lines
)

// freshTurns is the number of new pins that get a slot for each root of the backlog.
const freshTurns = 3

// share is the waiting roots and the running fetches of one account.
type share struct {
	account state.AccountID
	lines   [lines]*list.List // lists of *entry
	active  int               // number of running fetches
	served  uint64            // value of queue.clock when the account last got a slot
	place   [orders]int       // position in each heap of the queue; -1 means not in the heap

	behind bool // the dispatcher has refused roots of the account, so the auditor must offer them later
	again  bool // roots of the account were removed from memory, so the auditor must begin at the first root
}

func (s *share) waiting() int { return s.lines[fresh].Len() + s.lines[backlog].Len() }

// load returns the number of roots of the account that precede a new pin.
func (s *share) load() int { return s.active + s.waiting() }

// order is one of the orders in which the queue sorts the shares of accounts.
type order uint8

const (
	byFresh   order = iota // shares with a root in the line fresh, the next to get a slot first
	byBacklog              // the same for the line backlog; byFresh and byBacklog equal their lines
	byLength               // shares with any waiting root, the one with the most first
	orders
)

// queue contains the roots that wait for a slot, by account, so that many pins of one account do
// not delay the few pins of another. The next slot goes to the account with the fewest running
// fetches, and among these to the one that got a slot the longest time ago. The cost of an
// operation is logarithmic in the number of accounts and does not depend on the number of roots.
type queue struct {
	shares map[state.AccountID]*share
	heaps  [orders]shareHeap
	clock  uint64
	picks  int
	length int
}

func newQueue() *queue {
	q := &queue{shares: map[state.AccountID]*share{}}
	for o := range orders {
		q.heaps[o].order = o
	}
	return q
}

// of returns the share of an account and creates it if there is none.
func (q *queue) of(account state.AccountID) *share {
	s := q.shares[account]
	if s == nil {
		s = &share{account: account, lines: [lines]*list.List{list.New(), list.New()}}
		for o := range s.place {
			s.place[o] = -1
		}
		q.shares[account] = s
	}
	return s
}

// lightest returns the account with the fewest waiting and running roots; "" for no accounts.
func (q *queue) lightest(accounts []state.AccountID) state.AccountID {
	var best state.AccountID
	least := -1
	for _, a := range accounts {
		load := 0
		if s := q.shares[a]; s != nil {
			load = s.load()
		}
		if least < 0 || load < least {
			best, least = a, load
		}
	}
	return best
}

// add puts a root at the end of a line of its account.
func (q *queue) add(e *entry, account state.AccountID, l line) {
	s := q.of(account)
	e.account, e.share, e.line = account, s, l
	e.place = s.lines[l].PushBack(e)
	q.length++
	q.fix(s)
}

// remove removes a root from the queue.
func (q *queue) remove(e *entry) {
	s := e.share
	s.lines[e.line].Remove(e.place)
	e.share, e.place = nil, nil
	q.length--
	q.fix(s)
	q.release(s)
}

// room describes which fetches may begin now.
type room struct {
	line  [lines]bool // whether a fetch of any account may begin, by line
	first bool        // whether an account without a running fetch may begin one
	caps  [lines]int  // largest number of fetches of one account, by line
}

// next removes and returns the root that gets the next slot. It returns nil if r permits none of
// the waiting roots.
func (q *queue) next(r room) *entry {
	prefer := fresh
	if (q.picks+1)%(freshTurns+1) == 0 {
		prefer = backlog
	}
	for _, l := range []line{prefer, fresh + backlog - prefer} {
		s := q.heaps[l].top()
		if s == nil || s.active >= r.caps[l] || !r.line[l] && (!r.first || s.active > 0) {
			continue
		}
		if q.heaps[fresh].Len() > 0 && q.heaps[backlog].Len() > 0 {
			q.picks++ // only where there is a choice
		}
		q.clock++
		s.served = q.clock
		e := s.lines[l].Front().Value.(*entry)
		q.remove(e)
		return e
	}
	return nil
}

// turn returns the share of the account that gets the next free slot, or nil if no root waits.
func (q *queue) turn() *share {
	a, b := q.heaps[byFresh].top(), q.heaps[byBacklog].top()
	if a == nil || b != nil && before(b, a) {
		return b
	}
	return a
}

// last removes and returns the newest waiting root of the account with the most waiting roots,
// from the backlog if possible. It returns nil if no root waits.
func (q *queue) last() *entry {
	s := q.heaps[byLength].top()
	if s == nil {
		return nil
	}
	l := s.lines[backlog]
	if l.Len() == 0 {
		l = s.lines[fresh]
	}
	e := l.Back().Value.(*entry)
	q.remove(e)
	return e
}

// begun counts a running fetch of an account and returns its share. ended must be called with
// that share when the fetch has ended.
func (q *queue) begun(account state.AccountID) *share {
	s := q.of(account)
	s.active++
	q.fix(s)
	return s
}

func (q *queue) ended(s *share) {
	s.active--
	q.fix(s)
	q.release(s)
}

// release deletes a share that has no roots, no fetches and no information for the auditor.
func (q *queue) release(s *share) {
	if s.active == 0 && s.waiting() == 0 && !s.behind && !s.again {
		delete(q.shares, s.account)
	}
}

// fix moves a share to its right position in every heap.
func (q *queue) fix(s *share) {
	in := [orders]bool{s.lines[fresh].Len() > 0, s.lines[backlog].Len() > 0, s.waiting() > 0}
	for o := range orders {
		h, at := &q.heaps[o], s.place[o]
		switch {
		case in[o] && at < 0:
			heap.Push(h, s)
		case in[o]:
			heap.Fix(h, at)
		case at >= 0:
			heap.Remove(h, at)
		}
	}
}

// before returns whether account a gets a slot before account b.
func before(a, b *share) bool {
	if a.active != b.active {
		return a.active < b.active
	}
	return a.served < b.served
}

// shareHeap is a heap of shares in one order.
type shareHeap struct {
	order  order
	shares []*share
}

func (h *shareHeap) top() *share {
	if len(h.shares) == 0 {
		return nil
	}
	return h.shares[0]
}

// Len implements heap.Interface.
func (h *shareHeap) Len() int { return len(h.shares) }

// Less implements heap.Interface.
func (h *shareHeap) Less(i, j int) bool {
	a, b := h.shares[i], h.shares[j]
	if h.order == byLength {
		return a.waiting() > b.waiting()
	}
	return before(a, b)
}

// Swap implements heap.Interface.
func (h *shareHeap) Swap(i, j int) {
	h.shares[i], h.shares[j] = h.shares[j], h.shares[i]
	h.shares[i].place[h.order], h.shares[j].place[h.order] = i, j
}

// Push implements heap.Interface.
func (h *shareHeap) Push(x any) {
	s := x.(*share)
	s.place[h.order] = len(h.shares)
	h.shares = append(h.shares, s)
}

// Pop implements heap.Interface.
func (h *shareHeap) Pop() any {
	s := h.shares[len(h.shares)-1]
	h.shares[len(h.shares)-1] = nil
	h.shares = h.shares[:len(h.shares)-1]
	s.place[h.order] = -1
	return s
}
