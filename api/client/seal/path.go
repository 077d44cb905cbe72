package seal

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// maxPath bounds a path in bytes, as S3 bounds the key of an object.
const maxPath = 1024

// CleanPath returns path with its dot segments, doubled slashes and last slash taken away. The
// path has to be absolute ([ErrPath]). It must not leave the root, and must not hide a dot, slash
// or backslash behind a percent escape, which a server may decode ([ErrPathEscape]).
func CleanPath(p string) (string, error) {
	if !strings.HasPrefix(p, "/") || len(p) > maxPath || !utf8.ValidString(p) || strings.ContainsRune(p, 0) {
		return "", fmt.Errorf("%w: %.64q", ErrPath, p)
	}
	lower := strings.ToLower(p)
	for _, hidden := range []string{"%2e", "%2f", "%5c", "%25", "%00"} {
		if strings.Contains(lower, hidden) {
			return "", fmt.Errorf("%w: %.64q has %s", ErrPathEscape, p, hidden)
		}
	}
	depth := 0
	for segment := range strings.SplitSeq(p, "/") {
		switch segment {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return "", fmt.Errorf("%w: %.64q", ErrPathEscape, p)
			}
		default:
			if strings.Contains(segment, `\`) {
				return "", fmt.Errorf("%w: %.64q has a backslash", ErrPathEscape, p)
			}
			depth++
		}
	}
	return path.Clean(p), nil
}

// within returns the part of p below folder. Both are clean; whole segments are compared.
func within(folder, p string) (string, bool) {
	if folder == "/" || p == folder {
		return strings.TrimPrefix(p, folder), true
	}
	return strings.CutPrefix(p, folder+"/")
}

// checkPath returns [ErrPath] for a path of an object that is not absolute or that path.Clean would
// change, so that one object has one path and one storage key.
func checkPath(p string) error {
	if p == "/" {
		return fmt.Errorf("%w: it is the root", ErrPath)
	}
	return checkFolder(p)
}

// checkFolder is checkPath for a folder, which may be the root.
func checkFolder(p string) error {
	if !strings.HasPrefix(p, "/") || len(p) > maxPath || !utf8.ValidString(p) || strings.ContainsRune(p, 0) || path.Clean(p) != p {
		return fmt.Errorf("%w: %.64q", ErrPath, p)
	}
	return nil
}

// parent returns the folder of a clean path.
func parent(p string) string { return path.Dir(p) }
