package s3

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxRuleID is the maximum length of the ID of a CORS rule, in characters.
const maxRuleID = 255

func (s *surface) getCors(w http.ResponseWriter, r *request) error {
	ctx, cancel := r.soon()
	defer cancel()
	rules, err := s.objects.Cors(ctx, r.account(), r.bucket)
	if err != nil {
		return err
	}
	if len(rules) == 0 {
		return errorf(NoSuchCORSConfiguration, "the CORS configuration does not exist")
	}
	x := newXML()
	x.root("CORSConfiguration")
	for i := range rules {
		rule := &rules[i]
		x.begin("CORSRule")
		if rule.ID != "" {
			x.text("ID", rule.ID)
		}
		for _, l := range corsLists {
			for _, text := range *l.of(rule) {
				x.text(l.element, text)
			}
		}
		if rule.MaxAge >= 0 {
			x.number("MaxAgeSeconds", rule.MaxAge)
		}
		x.end("CORSRule")
	}
	x.end("CORSConfiguration")
	return x.send(w, http.StatusOK)
}

func (s *surface) putCors(w http.ResponseWriter, r *request) error {
	body, err := s.readSmall(w, r, maxConfiguration)
	if err != nil {
		return err
	}
	rules, err := readCors(body)
	if err != nil {
		return err
	}
	if err := s.setCors(r, rules); err != nil {
		return err
	}
	return web.Empty(w, http.StatusOK)
}

func (s *surface) deleteCors(w http.ResponseWriter, r *request) error {
	if err := s.setCors(r, nil); err != nil {
		return err
	}
	return web.Empty(w, http.StatusNoContent)
}

func (s *surface) setCors(r *request, rules []state.CorsRule) error {
	ctx, cancel := r.soon()
	defer cancel()
	return s.objects.SetCors(ctx, r.account(), r.bucket, rules)
}

// corsLists has the repeatable elements of a CORS rule, each with its field and the check of its
// text.
var corsLists = []struct {
	element string
	of      func(*state.CorsRule) *[]string
	check   func(text string) error
}{
	{"AllowedOrigin", func(r *state.CorsRule) *[]string { return &r.Origins }, func(text string) error {
		if text == "" || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return errorf(InvalidRequest, "AllowedOrigin %.64q is no origin", text)
		}
		return oneWildcard("AllowedOrigin", text)
	}},
	{"AllowedMethod", func(r *state.CorsRule) *[]string { return &r.Methods }, func(text string) error {
		if !slices.Contains(corsVerbs, text) {
			return errorf(InvalidRequest, "found unsupported HTTP method in CORS config: unsupported method is %.64s", text)
		}
		return nil
	}},
	{"AllowedHeader", func(r *state.CorsRule) *[]string { return &r.Headers }, func(text string) error {
		if !isToken(text) {
			return errorf(InvalidRequest, "AllowedHeader %.64q is no name of a header", text)
		}
		return oneWildcard("AllowedHeader", text)
	}},
	{"ExposeHeader", func(r *state.CorsRule) *[]string { return &r.Expose }, func(text string) error {
		switch {
		case strings.Contains(text, "*"):
			return errorf(InvalidRequest, "ExposeHeader %.64q contains wildcard: wildcards are not supported for ExposeHeader", text)
		case !isToken(text):
			return errorf(InvalidRequest, "ExposeHeader %.64q is no name of a header", text)
		}
		return nil
	}},
}

func oneWildcard(element, text string) error {
	if strings.Count(text, "*") > 1 {
		return errorf(InvalidRequest, "%s %.64q can not have more than one wildcard", element, text)
	}
	return nil
}

// readCors parses a CORSConfiguration document.
func readCors(body []byte) (rules []state.CorsRule, err error) {
	x, err := readXML(body, "CORSConfiguration")
	if err != nil {
		return nil, err
	}
	for {
		name, ok, err := x.child()
		switch {
		case err != nil:
			return nil, err
		case !ok && len(rules) == 0:
			return nil, malformed("there is no CORSRule")
		case !ok:
			return rules, x.finish()
		case name != "CORSRule":
			return nil, malformed("CORSConfiguration has %.64q in it", name)
		case len(rules) == state.MaxCorsRules:
			return nil, errorf(InvalidRequest, "the number of CORS rules should not exceed allowed limit of %d rules", state.MaxCorsRules)
		}
		rule, err := x.corsRule()
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
}

func (x *xmlReader) corsRule() (rule state.CorsRule, err error) {
	rule.MaxAge = -1
	for {
		name, ok, err := x.child()
		if err != nil {
			return rule, err
		}
		if !ok {
			if len(rule.Origins) == 0 || len(rule.Methods) == 0 {
				return rule, malformed("CORSRule has to have an AllowedOrigin and an AllowedMethod")
			}
			return rule, nil
		}
		text, err := x.text()
		if err == nil {
			err = addToRule(&rule, name, text)
		}
		if err != nil {
			return rule, err
		}
	}
}

// addToRule adds the element name with its text to a CORS rule.
func addToRule(rule *state.CorsRule, name, text string) error {
	switch name {
	case "ID":
		if rule.ID != "" {
			return malformed("CORSRule has more than one ID")
		}
		if rule.ID = text; utf8.RuneCountInString(text) > maxRuleID {
			return errorf(InvalidRequest, "the ID of a CORS rule has at most %d characters", maxRuleID)
		}
		return nil
	case "MaxAgeSeconds":
		n, ok := web.Decimal(strings.TrimSpace(text))
		if !ok || n > math.MaxInt32 || rule.MaxAge >= 0 {
			return malformed("MaxAgeSeconds has to be one number of seconds")
		}
		rule.MaxAge = n
		return nil
	}
	for _, l := range corsLists {
		if l.element != name {
			continue
		}
		list := l.of(rule)
		if *list = append(*list, text); len(*list) > state.MaxCorsTexts {
			return malformed("CORSRule has more than %d times %s", state.MaxCorsTexts, name)
		}
		return l.check(text)
	}
	return malformed("CORSRule has %.64q in it", name)
}
