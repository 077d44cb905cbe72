package s3

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// policy has the conditions that the signer of an upload form has set. See "POST Policy" in the
// Amazon S3 API Reference
// (https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-HTTPPOSTConstructPolicy.html).
type policy struct {
	expires     time.Time
	conditions  []policyCondition
	least, most int64 // allowed size of the file in bytes
}

// policyCondition is a condition on the value of a form field.
type policyCondition struct {
	prefix bool   // true: the field begins with value; false: it equals value
	field  string // in lower case
	value  string
}

// Operators of conditions, in lower case.
const (
	opEqual  = "eq"
	opPrefix = "starts-with"
	opLength = "content-length-range"
)

func (c *policyCondition) String() string {
	op := opEqual
	if c.prefix {
		op = opPrefix
	}
	text, err := json.Marshal([]string{op, "$" + c.field, c.value})
	if err != nil {
		return op // already the name of an operator
	}
	return string(text)
}

func badPolicy(format string, args ...any) *Error {
	return errorf(InvalidPolicyDocument, "Invalid Policy: "+format, args...)
}

// readPolicy parses the form field policy, which is JSON in base64. It rejects unknown elements,
// because ignoring one could allow more than the signer intended.
func readPolicy(text string) (*policy, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, badPolicy("it is not Base64")
	}
	// As a map, because encoding/json matches struct fields in any case.
	var document map[string]json.RawMessage
	if err := json.Unmarshal(data, &document); err != nil || document == nil {
		return nil, badPolicy("invalid JSON")
	}
	for name := range document {
		if name != "expiration" && name != "conditions" {
			return nil, badPolicy("unexpected: %.64q", name)
		}
	}
	var expiration string
	if err := json.Unmarshal(document["expiration"], &expiration); err != nil {
		return nil, badPolicy("policy document must include expiration, which is a string")
	}
	p := &policy{most: math.MaxInt64}
	if p.expires, err = time.Parse(time.RFC3339, expiration); err != nil {
		return nil, badPolicy("invalid 'expiration' value: %.64q", expiration)
	}
	var conditions []json.RawMessage
	if err := json.Unmarshal(document["conditions"], &conditions); err != nil || conditions == nil {
		return nil, badPolicy("policy document must include conditions, which are a list")
	}
	for _, c := range conditions {
		if err := p.add(c); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// add parses one condition of a policy and adds it to p.
func (p *policy) add(data json.RawMessage) error {
	var simple map[string]*string
	if err := json.Unmarshal(data, &simple); err == nil {
		if len(simple) != 1 {
			return badPolicy("Invalid Simple-Condition: Simple-Conditions must have exactly one property specified")
		}
		for field, value := range simple {
			if value == nil {
				return badPolicy("Invalid Simple-Condition: value must be a string")
			}
			p.conditions = append(p.conditions, policyCondition{field: strings.ToLower(field), value: *value})
		}
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil || len(list) != 3 {
		return badPolicy("a condition is an object with one string, or a list of three")
	}
	var op string
	if err := json.Unmarshal(list[0], &op); err != nil {
		return badPolicy("the operator of a condition must be a string")
	}
	op = strings.ToLower(op)
	if op == opLength {
		return p.between(list[1], list[2])
	}
	var field, value *string
	if json.Unmarshal(list[1], &field) != nil || json.Unmarshal(list[2], &value) != nil || field == nil || value == nil {
		return badPolicy("field and value of a condition must be strings")
	}
	name, dollar := strings.CutPrefix(strings.ToLower(*field), "$")
	switch {
	case op != opEqual && op != opPrefix:
		return badPolicy("invalid condition operation: %.64q", op)
	case !dollar || name == "":
		return badPolicy("the field of a condition must begin with $: %.64q", *field)
	}
	p.conditions = append(p.conditions, policyCondition{op == opPrefix, name, *value})
	return nil
}

// between parses the bounds of a content-length-range condition and applies them to p.
func (p *policy) between(least, most json.RawMessage) error {
	from, good := web.Decimal(strings.Trim(string(least), `"`))
	to, also := web.Decimal(strings.Trim(string(most), `"`))
	if !good || !also || from > to {
		return badPolicy("%s has to have two numbers of bytes, the smaller one first", opLength)
	}
	p.least, p.most = max(p.least, from), min(p.most, to)
	return nil
}

// uncovered reports whether a form may have the field although no condition of the policy
// mentions it.
func uncovered(name string) bool {
	return name == "policy" || name == "x-amz-signature" || ignored(name)
}

func denied(format string, args ...any) *Error {
	return errorf(AccessDenied, "Invalid according to Policy: "+format, args...)
}

// judge returns an error if the policy does not allow the form f at the time now: it has expired,
// a condition is false, or a field is not mentioned by any condition. bucket and key are those of
// the new object.
func (p *policy) judge(f *form, bucket, key string, now time.Time) error {
	if !now.Before(p.expires) {
		return denied("Policy expired.")
	}
	var covered []string
	for i := range p.conditions {
		c := &p.conditions[i]
		value, given := f.fields[c.field]
		switch c.field {
		case "bucket":
			value, given = bucket, true
		case "key":
			value = key
		}
		if !given || !c.holds(value) {
			e := denied("Policy Condition failed")
			e.shown = fmt.Sprintf(": %.1024s", c)
			return e
		}
		covered = append(covered, c.field)
	}
	var extra []string
	for _, name := range append([]string{"bucket"}, f.names...) {
		if !uncovered(name) && !slices.Contains(covered, name) && !slices.Contains(extra, name) {
			extra = append(extra, name)
		}
	}
	if len(extra) > 0 {
		return denied("Extra input fields: %.1024s", strings.ToValidUTF8(strings.Join(extra, ", "), "\uFFFD"))
	}
	return nil
}

// holds reports whether a value satisfies the condition. If the field is Content-Type, the value
// may be a list, and every entry must satisfy it.
func (c *policyCondition) holds(value string) bool {
	if !c.prefix {
		return value == c.value
	}
	if c.field != "content-type" {
		return strings.HasPrefix(value, c.value)
	}
	for one := range strings.SplitSeq(value, ",") {
		if !strings.HasPrefix(strings.TrimLeft(one, " \t"), c.value) {
			return false
		}
	}
	return true
}
