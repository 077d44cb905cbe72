package console

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// format is a file format of an exported list.
type format[T any] struct {
	kind string // its Content-Type
	// begin starts a list. row writes one row, and end writes buffered bytes after the last row.
	begin func(w io.Writer) (row func(*T) error, end func() error)
}

// ndjson returns the format newline-delimited JSON.
func ndjson[T any]() format[T] {
	return format[T]{"application/x-ndjson", func(w io.Writer) (func(*T) error, func() error) {
		out := json.NewEncoder(w)
		out.SetEscapeHTML(false)
		return func(row *T) error { return out.Encode(row) }, func() error { return nil }
	}}
}

// commaSeparated returns the format CSV (RFC 4180) with a header line. values returns the fields
// of a row, in which texts of users have passed through web.CSVText.
func commaSeparated[T any](columns []string, values func(*T) []string) format[T] {
	return format[T]{"text/csv; charset=utf-8; header=present", func(w io.Writer) (func(*T) error, func() error) {
		out := csv.NewWriter(w)
		out.UseCRLF = true
		_ = out.Write(columns) // Flush returns the error
		return func(row *T) error { return out.Write(values(row)) }, func() error { out.Flush(); return out.Error() }
	}}
}

// export answers with rows in a format, as a download with the name file. next returns the rows
// page by page, and whether there are more. If next fails after the first page, export closes the
// connection, so that the user does not take an incomplete file for the whole list.
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
