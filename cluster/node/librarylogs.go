package node

import (
	"log/slog"

	"github.com/holdfast-ipfs/holdfast/peer"
)

// LibraryLogs makes h write the errors that the libraries of the IPFS side log. It applies to
// the whole process: a command calls it once, before it opens a node.
func LibraryLogs(h slog.Handler) { peer.LibraryLogs(h) }
