package config

import (
	"errors"
	"strings"
)

// Error is everything that is wrong with the settings.
type Error struct {
	Problems []Problem // at least one, in the order they were met
}

// Problem is one unknown name or bad value.
type Problem struct {
	Key    string // section.name, empty when what was given is no setting
	Source string // file, variable or flag that gave the value; empty for a value set in code
	Detail string // for people
	flag   bool
}

// Error is all the problems on one line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return "settings: " + strings.Join(lines, "; ")
}

// Usage reports whether nothing but flags is wrong, so that the command line
// can be called wrong usage.
func (e *Error) Usage() bool {
	for _, p := range e.Problems {
		if !p.flag {
			return false
		}
	}
	return true
}

// String is the problem on one line, its source and key first.
func (p Problem) String() string {
	var parts []string
	if p.Source != "" {
		parts = append(parts, p.Source)
	}
	if p.Key != "" {
		parts = append(parts, p.Key)
	}
	return strings.Join(append(parts, p.Detail), ": ")
}

// source is where a value came from.
type source struct {
	name string
	flag bool
}

// problem says what is wrong with the value of s. The value of a secret is not
// repeated.
func problem(s setting, from source, err error) Problem {
	detail := err.Error()
	if open := (*openError)(nil); s.secret && !errors.As(err, &open) {
		detail = "bad value"
	}
	return Problem{Key: s.key, Source: from.name, Detail: detail, flag: from.flag}
}

// asError is nil when nothing was found.
func asError(found []Problem) error {
	if len(found) == 0 {
		return nil
	}
	return &Error{Problems: found}
}
