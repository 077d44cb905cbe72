package pinning

import (
	_ "embed"
	"fmt"
	"net/http"
	"strconv"
)

// openAPI describes the surface in OpenAPI 3.1.
//
//go:embed openapi.json
var openAPI string

// describe answers with openAPI. It needs no token.
func describe(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(openAPI)))
	w.WriteHeader(http.StatusOK)
	if _, err := w.Write([]byte(openAPI)); err != nil {
		return fmt.Errorf("write description: %w", err)
	}
	return nil
}
