package webapi

import (
	_ "embed"
	"fmt"
	"strconv"
)

// openAPI describes the surface in OpenAPI 3.1.
//
//go:embed openapi.json
var openAPI string

// describe answers GET /openapi.json to everybody, because the document contains nothing
// secret.
func describe(c *call) error {
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("Content-Length", strconv.Itoa(len(openAPI)))
	if _, err := c.w.Write([]byte(openAPI)); err != nil {
		return fmt.Errorf("write description: %w", err)
	}
	return nil
}
