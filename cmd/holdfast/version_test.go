package main

import (
	"runtime/debug"
	"testing"
)

// The version is that of the linker, else that of the module, else the commit, else "devel".
func TestTheVersionIsTheModulesOrTheTags(t *testing.T) {
	settings := func(pairs ...string) []debug.BuildSetting {
		var all []debug.BuildSetting
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return all
	}
	const commit = "35163fd0123456789abcdef0123456789abcdef0"
	for _, tc := range []struct {
		name   string
		linked string
		build  *debug.BuildInfo
		want   string
	}{
		{"make build at a tag", "v1.2.3", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "v1.2.3"},
		{"go install at a version", unknownVersion, &debug.BuildInfo{Main: debug.Module{Version: "v0.9.1"}}, "v0.9.1"},
		{"go install at a commit", unknownVersion, &debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20261127055634-9d9ab44f0123"}}, "v0.0.0-20261127055634-9d9ab44f0123"},
		{"the linker before the module", "v1.2.3", &debug.BuildInfo{Main: debug.Module{Version: "v0.9.1"}}, "v1.2.3"},
		{"a commit without a version", unknownVersion, &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: settings("vcs.revision", commit, "vcs.modified", "false")}, "35163fd01234"},
		{"a commit with changes", unknownVersion, &debug.BuildInfo{Settings: settings("vcs.modified", "true", "vcs.revision", commit)}, "35163fd01234-dirty"},
		{"a short revision", unknownVersion, &debug.BuildInfo{Settings: settings("vcs.revision", "35163fd")}, "35163fd"},
		{"nothing known", unknownVersion, &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: settings("vcs.modified", "true")}, "devel"},
		{"no build information", unknownVersion, nil, "devel"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := programVersion(tc.linked, tc.build); got != tc.want {
				t.Errorf("version %q, not %q", got, tc.want)
			}
		})
	}
}
