package config

import (
	"errors"
	"strings"
)

// Error reports all problems of the settings at once.
type Error struct {
	Problems []Problem // at least one, in the order of their discovery
}

// Problem is an unknown setting or a bad value of a setting.
type Problem struct {
	Key    string // section.name; empty if the name is not a setting
	Source string // file, variable or flag with the value; empty for a value set in code
	Detail string // text of the problem
	flag   bool   // Source is a flag
}

// Error returns all problems on one line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return "settings: " + strings.Join(lines, "; ")
}

// Usage reports whether all problems come from flags. In that case the user called the command
// with wrong arguments.
func (e *Error) Usage() bool {
	for _, p := range e.Problems {
		if !p.flag {
			return false
		}
	}
	return true
}

// String returns the source, the key and the detail of the problem on one line. It omits those
// that are empty.
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

// source is the origin of a value.
type source struct {
	name string
	flag bool
}

// problem returns the Problem for err, which a check of s returned. If s is a secret setting, it
// replaces the text of err, which could contain the secret. It keeps the text of an openError.
func problem(s setting, from source, err error) Problem {
	detail := err.Error()
	if open := (*openError)(nil); s.secret && !errors.As(err, &open) {
		detail = "bad value"
	}
	return Problem{Key: s.key, Source: from.name, Detail: detail, flag: from.flag}
}

// asError returns an *Error with the problems, or nil if there are none.
func asError(found []Problem) error {
	if len(found) == 0 {
		return nil
	}
	return &Error{Problems: found}
}
