package state

// The internal account of the paid gateway, which owns all paid content, and its only bucket. The
// first ReservePayment creates both. Nobody can sign in to the account, it has no API keys and is
// not found by its e-mail address, and it cannot be closed. Its allowance is Unlimited, and it is
// never charged credits.
const (
	PaidAccount      AccountID = "paid"
	PaidAccountEmail string    = "paid gateway"
	PaidBucket       string    = "paid"
)

// ensurePaid creates the internal account and its bucket if they do not exist.
func ensurePaid(tx Tx, at Millis, e *entry) error {
	account, err := get[Account](tx, accountKey(PaidAccount))
	switch {
	case err != nil:
		return err
	case account != nil && account.Email != PaidAccountEmail:
		return Errorf(CodeExists, "the id %s of the paid gateway is taken by the account %s", PaidAccount, account.Email)
	case account != nil:
		return nil
	}
	if err := put(tx, quotaKey(PaidAccount), &Quota{Allowance: Unlimited}); err != nil {
		return err
	}
	if err := put(tx, accountKey(PaidAccount), &Account{ID: PaidAccount, Email: PaidAccountEmail, Created: at}); err != nil {
		return err
	}
	create := CreateBucket{Bucket{Account: PaidAccount, Name: PaidBucket, Created: at, Public: true}}
	_, err = create.apply(tx, e)
	return err
}

// forPeople returns ErrForbidden for the internal account of the paid gateway. Commands that only
// make sense for a person's account call it after they have found the account.
func forPeople(a AccountID) error {
	if a == PaidAccount {
		return Errorf(CodeForbidden, "%s is the account of the paid gateway: it belongs to nobody", a)
	}
	return nil
}
