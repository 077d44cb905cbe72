// Package faults runs three real processes on disks that fill, hang, fail and
// lose what was not flushed, and behind slow lines, and looks what becomes of what was
// acknowledged.
// The disks are ext4 images on loop devices, so it takes Linux, root, and the
// build tag "faults".
//
// Imports: test/harness.
// Never:   a package of Holdfast.
package faults
