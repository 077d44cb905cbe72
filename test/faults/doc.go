// Package faults runs three real processes on slow network lines and on disks that fill up, hang,
// fail, or lose unflushed data, and checks that acknowledged data survives. The disks are ext4
// images on loop devices, so the tests need Linux, root and the build tag "faults".
//
// Imports: test/harness.
// Never:   imports of packages of Holdfast.
package faults
