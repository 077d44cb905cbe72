//go:build !amd64 || purego

package multimd5

func lanes(*[4][width]uint32, *[width]*byte, int) { panic("multimd5: no such instructions") }

func haveLanes() bool { return false }
