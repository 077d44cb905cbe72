//go:build amd64 && !purego

package multimd5

import "golang.org/x/sys/cpu"

// lanes hashes the given number of blocks of 64 bytes of each body. from has the addresses of
// the bodies' blocks, all of which must be readable. state has the values A to D of RFC 1321 of
// each body.
//
//go:noescape
func lanes(state *[4][width]uint32, from *[width]*byte, blocks int)

// haveLanes returns whether this processor has the instructions that lanes needs.
func haveLanes() bool { return cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL }
