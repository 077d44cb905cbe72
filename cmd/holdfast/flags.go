package main

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// checkedFlag refuses values by a check of its own before the flag takes them.
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
	}
}

// errEmpty is a value that was given and is empty, which is what a variable of a
// shell becomes that was never set. It never stands for a default.
var errEmpty = errors.New("it is empty")

// mustNotBeEmpty has flags refuse a value that is empty.
func mustNotBeEmpty(cmd *cobra.Command, names ...string) {
	checkFlags(cmd, func(text string) error {
		if text == "" {
			return errEmpty
		}
		return nil
	}, names...)
}

// mustHaveEntries has flags of lists refuse a list, or a part of one, that is empty.
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

// words are the entries of a list as people write them: with commas, spaces or both
// between them.
func words(list []string) (all []string) {
	for _, entry := range list {
		all = append(all, strings.Fields(entry)...)
	}
	return all
}

// errNoText is a text that JSON cannot carry: it would be changed on the way.
var errNoText = errors.New("it is not UTF-8")

// mustBeText has flags refuse a value that is not UTF-8.
func mustBeText(cmd *cobra.Command, names ...string) {
	checkFlags(cmd, func(text string) error {
		if !utf8.ValidString(text) {
			return errNoText
		}
		return nil
	}, names...)
}
