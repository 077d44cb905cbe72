package state

import "fmt"

// Payment returns a payment, or ErrNotFound.
func (v View) Payment(id PaymentID) (Payment, error) {
	p, err := findPayment(v.r, &id)
	if err == nil && p == nil {
		err = Errorf(CodeNotFound, "there is no such payment")
	}
	if err != nil {
		return Payment{}, err
	}
	return *p, nil
}

// PaymentsQuery selects a page of payments, newest first.
type PaymentsQuery struct {
	// After is the Place of the last payment of the previous page; the zero value means to begin
	// with the newest payment.
	After PaymentPlace
	Limit int
}

// PaymentPlace is the place of a payment in the order of PaymentsQuery.
type PaymentPlace struct {
	Reserved Millis
	ID       PaymentID
}

// Place returns the place of the payment.
func (v *Payment) Place() PaymentPlace { return PaymentPlace{v.Reserved, v.ID} }

// Payments returns a page of payments, and whether there are more.
func (v View) Payments(q PaymentsQuery) (page []Payment, more bool, err error) {
	prefix := paidKey(paidByTime)
	from := prefix
	if q.After != (PaymentPlace{}) {
		from = append(q.After.ID.in(paidKey(paidByTime).descending(q.After.Reserved)), 0)
	}
	limit := min(q.Limit, MaxListLimit)
	var ids []PaymentID
	err = v.r.Scan(from, prefix.end(), false, func(k, _ []byte) (bool, error) {
		if more = len(ids) >= limit; more {
			return false, nil
		}
		if len(k) < len(prefix)+8 {
			return false, fmt.Errorf("state: short key %x", k)
		}
		id, err := readPaymentID(k[len(prefix)+8:])
		ids = append(ids, id)
		return err == nil, err
	})
	if err != nil {
		return nil, false, err
	}
	for i := range ids {
		p, err := findPayment(v.r, &ids[i])
		if err != nil {
			return nil, false, err
		}
		if p == nil {
			return nil, false, brokenPayment(&ids[i])
		}
		page = append(page, *p)
	}
	return page, more, nil
}

// PaymentSum is the number of payments of one state, network and asset, and their total amount.
type PaymentSum struct {
	State          PaymentState
	Network, Asset string
	Count          uint64
	Amount         string // decimal number of atomic units
}

// PaymentSums returns the sums of all payments, ordered by state, network and asset.
func (v View) PaymentSums() (sums []PaymentSum, err error) {
	prefix := paidKey(paidSum)
	err = v.r.Scan(prefix, prefix.end(), false, func(k, value []byte) (bool, error) {
		if len(k) <= len(prefix) {
			return false, fmt.Errorf("state: short key %x", k)
		}
		sum := PaymentSum{State: PaymentState(k[len(prefix)])}
		var err error
		if sum.Network, k, err = readPart[string](k[len(prefix)+1:]); err != nil {
			return false, err
		}
		if sum.Asset, _, err = readPart[string](k); err != nil {
			return false, err
		}
		total, err := decode[paidTotal](value)
		if err != nil {
			return false, err
		}
		sum.Count, sum.Amount = total.Count, total.Amount
		sums = append(sums, sum)
		return true, nil
	})
	return sums, err
}

// PaidObject returns the owner of a paid object, bucket/key, or ErrNotFound.
func (v View) PaidObject(object string) (PaidObject, error) {
	if len(object) <= MaxKeyBytes {
		o, err := get[PaidObject](v.r, ownerKey(object))
		if err != nil {
			return PaidObject{}, err
		}
		if o != nil {
			return *o, nil
		}
	}
	return PaidObject{}, Errorf(CodeNotFound, "there is no paid object %s", object)
}

// PaymentsDue returns a command that would change something at the time now: a SweepPayments,
// EndPaidObjects or ForgetPayments. It returns nil if there is none.
func (v View) PaymentsDue(now Millis) (Command, error) {
	left, err := paymentsBy(v.r, paidReserved, now-PaymentTimeout, 1)
	if err != nil {
		return nil, err
	}
	if len(left) > 0 {
		return &SweepPayments{Now: now}, nil
	}
	for _, of := range []struct {
		index byte
		by    Millis
	}{{paidEnds, now}, {paidEnded, now - PaidTrace}} {
		over, err := paidBy(v.r, of.index, of.by, 1)
		if err != nil {
			return nil, err
		}
		if len(over) > 0 {
			return &EndPaidObjects{Now: now}, nil
		}
	}
	old, err := paymentsBy(v.r, paidFailed, now, 1)
	if err != nil || len(old) == 0 {
		return nil, err
	}
	return &ForgetPayments{Now: now}, nil
}
