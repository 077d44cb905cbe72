package console

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// format is a form of an exported list.
type format[T any] struct {
	kind string // its Content-Type
	// begin returns the functions that write a row and what is left of the list.
	begin func(w io.Writer) (row func(*T) error, end func() error)
}

// ndjson is newline-delimited JSON.
func ndjson[T any]() format[T] {
	return format[T]{"application/x-ndjson", func(w io.Writer) (func(*T) error, func() error) {
		out := json.NewEncoder(w)
		out.SetEscapeHTML(false)
		return func(row *T) error { return out.Encode(row) }, func() error { return nil }
	}}
}

// commaSeparated is comma-separated values (RFC 4180) with a header line. values returns texts of users
// as web.CSVText does.
func commaSeparated[T any](columns []string, values func(*T) []string) format[T] {
	return format[T]{"text/csv; charset=utf-8; header=present", func(w io.Writer) (func(*T) error, func() error) {
		out := csv.NewWriter(w)
		out.UseCRLF = true
		_ = out.Write(columns) // Flush returns the error
		return func(row *T) error { return out.Write(values(row)) }, func() error { out.Flush(); return out.Error() }
	}}
}

// export answers with rows in a format, to be saved under the name file. next returns
// the rows page by page, and whether there are more. If next fails after the first page, export cuts
// the connection, so that nobody takes an incomplete file for the whole list.
func export[T any](c *call, file string, as format[T], next func() (rows []T, more bool, err error)) error {
	var write func(*T) error
	var end func() error
	for begun := false; ; begun = true {
		rows, more, err := next()
		switch {
		case err != nil && begun:
			panic(http.ErrAbortHandler)
		case err != nil:
			return err
		case !begun:
			c.w.Header().Set("Content-Type", as.kind)
			c.w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", file))
			if c.r.Method == http.MethodHead {
				return nil
			}
			write, end = as.begin(web.NewSteady(c.w, web.StallTimeout))
		}
		for i := range rows {
			if err := write(&rows[i]); err != nil {
				return fmt.Errorf("write %s: %w", file, err)
			}
		}
		if !more {
			if err := end(); err != nil {
				return fmt.Errorf("write %s: %w", file, err)
			}
			return nil
		}
	}
}
