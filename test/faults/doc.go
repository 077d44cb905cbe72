// Package faults runs three real processes on slow lines and on disks that fill, hang,
// fail and lose unflushed data, and checks that acknowledged data survives. The disks
// are ext4 images on loop devices, so the tests need Linux, root and the build tag
// "faults".
//
// Imports: test/harness.
// Never:   a package of Holdfast.
package faults
