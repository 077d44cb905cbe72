//go:build amd64 && !purego

package multimd5

import "golang.org/x/sys/cpu"

// lanes hashes the given number of blocks of 64 bytes of each of width bodies. from has the
// addresses of the first blocks; all blocks must be readable. state has, for each body, the
// values A to D of RFC 1321.
//
//go:noescape
func lanes(state *[4][width]uint32, from *[width]*byte, blocks int)

// haveLanes returns whether this processor has the instructions that lanes needs.
func haveLanes() bool { return cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL }
