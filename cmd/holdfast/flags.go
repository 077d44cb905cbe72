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

// checkedFlag checks a value before the flag takes it.
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

// errEmpty rejects an empty value. A shell variable that is not set expands to one, so it
// must not select a default.
var errEmpty = errors.New("it is empty")

// mustNotBeEmpty makes flags reject an empty value.
func mustNotBeEmpty(cmd *cobra.Command, names ...string) {
	checkFlags(cmd, func(text string) error {
		if text == "" {
			return errEmpty
		}
		return nil
	}, names...)
}

// mustHaveEntries makes list flags reject an empty list and an empty entry.
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

// words splits the entries of a list at spaces. pflag has split the list at commas already.
func words(list []string) (all []string) {
	for _, entry := range list {
		all = append(all, strings.Fields(entry)...)
	}
	return all
}

// errNoText rejects a value that is not UTF-8, because JSON would change it.
var errNoText = errors.New("it is not UTF-8")

// mustBeText makes flags reject a value that is not UTF-8.
func mustBeText(cmd *cobra.Command, names ...string) {
	checkFlags(cmd, func(text string) error {
		if !utf8.ValidString(text) {
			return errNoText
		}
		return nil
	}, names...)
}

// spanFlag is a duration flag that also accepts days.
type spanFlag time.Duration

// errNoSpan rejects a value that is not a duration.
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

// String implements pflag.Value. pflag does not show a default of "0".
func (f *spanFlag) String() string {
	if *f == 0 {
		return "0"
	}
	return config.FormatDuration(time.Duration(*f))
}

// Type implements pflag.Value.
func (f *spanFlag) Type() string { return "time" }

// spanFlagVar adds a duration flag to cmd.
func spanFlagVar(cmd *cobra.Command, into *time.Duration, name string, value time.Duration, usage string) {
	*into = value
	cmd.Flags().Var((*spanFlag)(into), name, usage)
}
