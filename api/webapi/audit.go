package webapi

import (
	"fmt"
	"maps"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// listAudit answers GET /audit with a page of the audit log, the newest rows first.
func (s *surface) listAudit(c *call) error {
	limit, err := c.limit()
	if err != nil {
		return err
	}
	after, err := c.cursor()
	if err != nil {
		return err
	}
	query := maps.Clone(c.query)
	query.Set("cursor", after)
	q, err := web.AuditQuery(query)
	if err != nil {
		return err
	}
	q.Limit = limit
	page, err := s.Audit.List(c.ctx, q)
	if err != nil {
		return fmt.Errorf("list audit log: %w", err)
	}
	body := web.AuditPageOf(page)
	if body.Next != "" {
		body.Next = cursorOf(body.Next)
	}
	return c.ok(body)
}

// verifyAudit answers GET /audit/verify: it verifies the hash chain of the whole audit log.
func (s *surface) verifyAudit(c *call) error {
	v, err := s.Audit.Verify(c.ctx)
	if err != nil {
		return fmt.Errorf("verify audit log: %w", err)
	}
	return c.ok(web.AuditCheckOf(v))
}
