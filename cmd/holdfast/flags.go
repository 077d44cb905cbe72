package main

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// checkedFlag is a flag value that rejects text for which check returns an error.
type checkedFlag struct {
	pflag.Value

	check func(text string) error
}

// Set implements pflag.Value.
func (f checkedFlag) Set(text string) error {
	if err := f.check(text); err != nil {
		return err
	}
	return f.Value.Set(text)
}

func checkFlags(cmd *cobra.Command, check func(string) error, names ...string) {
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if f == nil {
			f = cmd.PersistentFlags().Lookup(name)
		}
		f.Value = checkedFlag{f.Value, check}
		if f.DefValue == "[]" { // pflag would print it, because it does not see the list in a checkedFlag
			f.DefValue = ""
		}
	}
}

// errEmpty is the error for an empty flag value. A shell variable that is not set expands to an
// empty value, and this must not silently select the default.
var errEmpty = errors.New("it is empty")

// mustNotBeEmpty makes the named flags of cmd reject an empty value.
func mustNotBeEmpty(cmd *cobra.Command, names ...string) {
	checkFlags(cmd, func(text string) error {
		if text == "" {
			return errEmpty
		}
		return nil
	}, names...)
}

// mustHaveEntries makes the named list flags of cmd reject an empty list and a list with an empty
// entry.
func mustHaveEntries(cmd *cobra.Command, names ...string) {
	checkFlags(cmd, func(text string) error {
		for entry := range strings.SplitSeq(text, ",") {
			if strings.TrimSpace(entry) == "" {
				return errEmpty
			}
		}
		return nil
	}, names...)
}

// words splits each entry of list at white space and returns all parts. pflag has already split
// the list at commas, so the values of a flag can be separated by commas or spaces.
func words(list []string) (all []string) {
	for _, entry := range list {
		all = append(all, strings.Fields(entry)...)
	}
	return all
}

// errNoText is the error for a value that is not UTF-8. JSON would change such a value on its way
// to the node.
var errNoText = errors.New("it is not UTF-8")

// mustBeText makes the named flags of cmd reject a value that is not UTF-8.
func mustBeText(cmd *cobra.Command, names ...string) {
	checkFlags(cmd, func(text string) error {
		if !utf8.ValidString(text) {
			return errNoText
		}
		return nil
	}, names...)
}

// spanFlag is a flag for a duration. In addition to the syntax of time.ParseDuration it accepts
// days, such as 7d or 1d12h.
type spanFlag time.Duration

// errNoSpan is the error for a value that is not a duration.
var errNoSpan = errors.New("it is not a time such as 90m, 24h or 30d; the units are s, m, h and d")

// Set implements pflag.Value.
func (f *spanFlag) Set(text string) error {
	number, rest, inDays := strings.Cut(text, "d")
	if !inDays {
		number, rest = "0", text
	} else if rest == "" {
		rest = "0"
	}
	const day = 24 * time.Hour
	days, err := strconv.ParseUint(number, 10, 32)
	span, more := time.ParseDuration(rest)
	if err != nil || more != nil || inDays && (span < 0 || days > uint64((math.MaxInt64-span)/day)) {
		return errNoSpan
	}
	*f = spanFlag(time.Duration(days)*day + span)
	return nil
}

// String implements pflag.Value. For a zero duration it returns "0", because pflag omits that
// default from the help text.
func (f *spanFlag) String() string {
	if *f == 0 {
		return "0"
	}
	return config.FormatDuration(time.Duration(*f))
}

// Type implements pflag.Value.
func (f *spanFlag) Type() string { return "time" }

// spanFlagVar adds a duration flag to cmd. The flag stores its value in *into. value is the
// default.
func spanFlagVar(cmd *cobra.Command, into *time.Duration, name string, value time.Duration, usage string) {
	*into = value
	cmd.Flags().Var((*spanFlag)(into), name, usage)
}
