package node

import (
	"log/slog"

	"github.com/holdfast-ipfs/holdfast/peer"
)

// LibraryLogs returns what the libraries of the IPFS side log of errors written by h, for the
// whole process: once, by its command, before a node is opened.
func LibraryLogs(h slog.Handler) { peer.LibraryLogs(h) }
