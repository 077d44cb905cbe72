package state

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// CORS rules belong to one bucket and go with it or with its account, and a later bucket of the same name has
// none.
func TestCorsRulesGoWithTheirBucket(t *testing.T) {
	s := shelved(t, Unlimited)
	rule := CorsRule{ID: "r", Origins: []string{"https://a.example"}, Methods: []string{"GET"}, MaxAge: -1}
	set := func(rules ...CorsRule) *SetBucketCors {
		return &SetBucketCors{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Cors: Cors{rules}}
	}
	has := func(want ...string) {
		t.Helper()
		rules, err := s.view().Cors(&s.b)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rules {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("rules %q, want %q", got, want)
		}
		s.check()
	}
	has()
	s.must(set())
	has()
	s.must(set(rule, CorsRule{ID: "second", Origins: []string{"*"}, Methods: []string{"PUT"}}))
	has("r", "second")
	s.must(set(rule))
	has("r")
	alices := set(rule)
	alices.Account = alice
	if _, err := s.apply(alices); !errors.Is(err, ErrNoBucket) {
		t.Errorf("another account's: %v", err)
	}
	s.must(&DeleteBucket{Account: bob, Name: s.b.Name, Born: s.b.Born})
	if n := len(s.rows(tableCors)); n != 0 {
		t.Errorf("%d rows are left of a bucket that is gone", n)
	}
	if _, err := s.apply(set(rule)); !errors.Is(err, ErrNoBucket) {
		t.Errorf("a bucket that is gone: %v", err)
	}
	s.b = s.bucket(bob, s.b.Name)
	has()
	s.must(set(rule))
	s.must(&CloseAccount{Account: bob})
	s.must(&ClearAccounts{Accounts: []AccountID{bob}})
	if n := len(s.rows(tableCors)); n != 0 {
		t.Errorf("%d rows are left of an account that is closed", n)
	}
}

// SetBucketCors rejects rules above a bound, without an origin or a method, with an empty line or with two
// wildcards in one text.
func TestCorsRulesHaveBounds(t *testing.T) {
	s := shelved(t, Unlimited)
	good := CorsRule{Origins: []string{"*"}, Methods: []string{"GET"}}
	long := strings.Repeat("x", MaxCorsBytes-4)
	for _, tc := range []struct {
		name  string
		rules []CorsRule
		want  error
	}{
		{"the most rules", slices.Repeat([]CorsRule{good}, MaxCorsRules), nil},
		{"one more", slices.Repeat([]CorsRule{good}, MaxCorsRules+1), ErrTooLarge},
		{"the most bytes", []CorsRule{{ID: long, Origins: []string{"*"}, Methods: []string{"GET"}}}, nil},
		{"one more byte", []CorsRule{{ID: long + "x", Origins: []string{"*"}, Methods: []string{"GET"}}}, ErrTooLarge},
		{"the most lines", []CorsRule{{Origins: slices.Repeat([]string{"*"}, MaxCorsTexts), Methods: []string{"GET"}}}, nil},
		{"one more line", []CorsRule{{Origins: slices.Repeat([]string{"*"}, MaxCorsTexts+1), Methods: []string{"GET"}}}, ErrTooLarge},
		{"no origin", []CorsRule{{Methods: []string{"GET"}}}, ErrInvalid},
		{"no method", []CorsRule{good, {Origins: []string{"*"}}}, ErrInvalid},
		{"an empty line", []CorsRule{{Origins: []string{"*"}, Methods: []string{"GET"}, Expose: []string{""}}}, ErrInvalid},
		{"two wildcards in an origin", []CorsRule{{Origins: []string{"*.*"}, Methods: []string{"GET"}}}, ErrInvalid},
		{"two wildcards in a header", []CorsRule{{Origins: []string{"*"}, Methods: []string{"GET"}, Headers: []string{"**"}}}, ErrInvalid},
	} {
		_, err := s.apply(&SetBucketCors{Account: bob, Bucket: s.b.Name, Born: s.b.Born, Cors: Cors{tc.rules}})
		if !errors.Is(err, tc.want) || tc.want == nil && err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
