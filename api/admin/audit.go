package admin

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// AuditRow is a row of the audit log.
type AuditRow = web.AuditRow

// AuditActor describes who asked for a change, and from where.
type AuditActor = web.AuditActor

// AuditPage is a page of the audit log.
type AuditPage = web.AuditPage

// AuditCheck is the result of a verification of the audit log.
type AuditCheck = web.AuditCheck

// audit answers GET /audit with a page of the audit log.
func (p *operator) audit(_ http.ResponseWriter, r *http.Request) (any, error) {
	query, err := queryOf(r)
	if err != nil {
		return nil, err
	}
	q, err := web.AuditQuery(query)
	if err != nil {
		return nil, err
	}
	page, err := p.opts.Audit.List(r.Context(), q)
	return web.AuditPageOf(page), err
}

// verifyAudit answers GET /audit/verify: it verifies the hash chain of the whole audit log.
func (p *operator) verifyAudit(_ http.ResponseWriter, r *http.Request) (any, error) {
	v, err := p.opts.Audit.Verify(r.Context())
	return web.AuditCheckOf(v), err
}
