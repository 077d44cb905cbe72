package node

import (
	"log/slog"

	"github.com/holdfast-ipfs/holdfast/peer"
)

// LibraryLogs passes the errors that the IPFS libraries log to h. It applies to the whole
// process, so a command calls it once, before it opens a node.
func LibraryLogs(h slog.Handler) { peer.LibraryLogs(h) }
