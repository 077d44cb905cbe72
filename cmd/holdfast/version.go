package main

import "runtime/debug"

// version is the tag or commit of the source. `make build` sets it with a linker flag.
var version = unknownVersion

// unknownVersion is the version of a binary that does not record its version, for example after a
// `go build` outside a repository.
const unknownVersion = "devel"

// revisionLength is the number of characters of a commit hash that programVersion returns.
// Pseudo-versions of Go have the same number.
const revisionLength = 12

// programVersion returns the version of this build. linked is the value of version, and takes
// precedence if the linker has set it. Otherwise the version comes from build: the module
// version, which `go install …@version` and builds in a repository record, or else the commit. If
// there is neither, or build is nil, programVersion returns unknownVersion.
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
