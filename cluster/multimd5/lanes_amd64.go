//go:build amd64 && !purego

package multimd5

import "golang.org/x/sys/cpu"

// lanes hashes as many blocks of 64 bytes of each body as it is told, from where from
// says. All of from has to be readable; state is that of RFC 1321, A to D, of each body.
//
//go:noescape
func lanes(state *[4][width]uint32, from *[width]*byte, blocks int)

// haveLanes returns whether this processor has the instructions.
func haveLanes() bool { return cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL }
