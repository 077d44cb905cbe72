package main

import "runtime/debug"

// version is the tag or commit of the source. `make build` sets it by the linker.
var version = unknownVersion

// unknownVersion is printed if the binary does not contain the version of its source, for
// example after a `go build` without the repository.
const unknownVersion = "devel"

// revisionLength is the number of characters of a commit hash that are printed, as in Go's
// pseudo-versions.
const revisionLength = 12

// programVersion returns the version of this build. This is the value that the linker has set;
// or else the version of the module, which `go install …@version` and the Go tool's stamp of a
// repository record; or else the commit; or else "devel". build is nil if the binary has no
// build information.
func programVersion(linked string, build *debug.BuildInfo) string {
	if linked != unknownVersion {
		return linked
	}
	if build == nil {
		return unknownVersion
	}
	if v := build.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, changed := "", false
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	if revision == "" {
		return unknownVersion
	}
	revision = revision[:min(len(revision), revisionLength)]
	if changed {
		revision += "-dirty"
	}
	return revision
}
