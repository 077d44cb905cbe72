package state

import (
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Limits of the CORS rules of a bucket.
const (
	MaxCorsRules = 100      // rules of a bucket
	MaxCorsBytes = 64 << 10 // bytes of all texts of these rules
	MaxCorsTexts = 4096     // origins, methods and headers of one rule, each
)

// CorsRule allows scripts of some origins to use a bucket from a browser. The gateway decides
// which requests it matches.
type CorsRule struct {
	ID      string
	Origins []string // with at most one "*" in each, like Headers
	Methods []string
	Headers []string // headers that a request may have
	Expose  []string // headers of an answer that a script may read
	MaxAge  int64    // seconds for which a browser may cache the answer; negative means not set
}

// Cors has the CORS rules of a bucket, in the order in which they are tried.
type Cors struct{ Rules []CorsRule }

// Code encodes the record, or decodes it if c is a decoder.
func (v *Cors) Code(c *codec.Coder) {
	c.Version(1)
	codec.List(c, &v.Rules, MaxCorsRules, func(c *codec.Coder, r *CorsRule) {
		codec.String(c, &r.ID, MaxCorsBytes)
		for _, texts := range r.texts() {
			codec.Strings(c, texts, MaxCorsTexts, MaxCorsBytes)
		}
		codec.Int(c, &r.MaxAge)
	})
}

func (v *CorsRule) texts() []*[]string {
	return []*[]string{&v.Origins, &v.Methods, &v.Headers, &v.Expose}
}

func (v *Cors) check() error {
	if len(v.Rules) > MaxCorsRules {
		return Errorf(CodeTooLarge, "%d CORS rules, the most is %d", len(v.Rules), MaxCorsRules)
	}
	size := 0
	for i := range v.Rules {
		r := &v.Rules[i]
		size += len(r.ID)
		for _, texts := range r.texts() {
			if len(*texts) > MaxCorsTexts {
				return Errorf(CodeTooLarge, "a CORS rule of %d lines, the most is %d", len(*texts), MaxCorsTexts)
			}
			for _, text := range *texts {
				size += len(text)
				if text == "" {
					return Errorf(CodeInvalid, "a CORS rule with an empty line")
				}
			}
		}
		if len(r.Origins) == 0 || len(r.Methods) == 0 {
			return Errorf(CodeInvalid, "a CORS rule needs an origin and a method")
		}
		for _, text := range append(r.Origins[:len(r.Origins):len(r.Origins)], r.Headers...) {
			if strings.Count(text, "*") > 1 {
				return Errorf(CodeInvalid, "a CORS rule with two wildcards in one line")
			}
		}
	}
	if size > MaxCorsBytes {
		return Errorf(CodeTooLarge, "CORS rules of %d bytes, the most is %d", size, MaxCorsBytes)
	}
	return nil
}

// SetBucketCors replaces the CORS rules of a bucket. An empty list removes them.
type SetBucketCors struct {
	Account AccountID
	Bucket  string
	Born    Incarnation
	Cors    Cors
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SetBucketCors) Code(c *codec.Coder) {
	codeBucket(c, &v.Account, &v.Bucket, &v.Born)
	v.Cors.Code(c)
}

func (v *SetBucketCors) apply(tx Tx, _ *entry) (Result, error) {
	if err := v.Cors.check(); err != nil {
		return Result{}, err
	}
	b, err := openBucket(tx, v.Account, v.Bucket, v.Born)
	if err != nil {
		return Result{}, err
	}
	if len(v.Cors.Rules) == 0 {
		return Result{}, tx.Delete(b.in(tableCors))
	}
	return Result{}, put(tx, b.in(tableCors), &v.Cors)
}

// Cors returns the CORS rules of a bucket, which may be none.
func (v View) Cors(b *Bucket) ([]CorsRule, error) {
	c, err := get[Cors](v.r, b.in(tableCors))
	if err != nil || c == nil {
		return nil, err
	}
	return c.Rules, nil
}
