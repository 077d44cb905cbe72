package pinning

import (
	_ "embed"
	"fmt"
	"net/http"
	"strconv"
)

// openAPI is the OpenAPI 3.1 document of this API.
//
//go:embed openapi.json
var openAPI string

// describe answers GET /openapi.json with openAPI, also without a token.
func describe(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(openAPI)))
	w.WriteHeader(http.StatusOK)
	if _, err := w.Write([]byte(openAPI)); err != nil {
		return fmt.Errorf("write description: %w", err)
	}
	return nil
}
