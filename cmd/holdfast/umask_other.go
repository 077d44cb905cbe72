//go:build !unix

package main

// ownFiles does nothing, because files on this system have no Unix permissions.
func ownFiles() {}
