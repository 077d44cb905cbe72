package webapi

import (
	_ "embed"
	"fmt"
	"strconv"
)

// openAPI is the OpenAPI 3.1 document of this API.
//
//go:embed openapi.json
var openAPI string

// describe answers GET /openapi.json with openAPI. It needs no credentials, because the document
// has no secrets.
func describe(c *call) error {
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("Content-Length", strconv.Itoa(len(openAPI)))
	if _, err := c.w.Write([]byte(openAPI)); err != nil {
		return fmt.Errorf("write description: %w", err)
	}
	return nil
}
