package main

import "runtime/debug"

// version is the tag or the commit that `make build` hands to the linker.
var version = unknownVersion

// unknownVersion is printed where nothing names the source: a build by `go build` without
// its repository.
const unknownVersion = "devel"

// revisionLength is how much of a commit's hash is printed, as in Go's pseudo-versions.
const revisionLength = 12

// programVersion returns the version of this build: the linker's value, or the version of
// the module as `go install …@version` and Go's own stamp of a repository have it, or the
// commit, or "devel". build is nil where the binary has no build information.
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
