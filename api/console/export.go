package console

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// export answers with rows as newline-delimited JSON, to be saved under the name file. next returns
// the rows page by page, and whether there are more. If next fails after the first page, export cuts
// the connection, so that nobody takes an incomplete file for the whole list.
func export[T any](c *call, file string, next func() (rows []T, more bool, err error)) error {
	out := json.NewEncoder(web.NewSteady(c.w, web.StallTimeout))
	out.SetEscapeHTML(false)
	for begun := false; ; begun = true {
		rows, more, err := next()
		switch {
		case err != nil && begun:
			panic(http.ErrAbortHandler)
		case err != nil:
			return err
		case !begun:
			c.w.Header().Set("Content-Type", "application/x-ndjson")
			c.w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", file))
			if c.r.Method == http.MethodHead {
				return nil
			}
		}
		for i := range rows {
			if err := out.Encode(&rows[i]); err != nil {
				return fmt.Errorf("write %s: %w", file, err)
			}
		}
		if !more {
			return nil
		}
	}
}
