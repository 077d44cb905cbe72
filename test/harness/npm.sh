#!/usr/bin/env bash
# Installs the packages that DIR/package-lock.json pins, once per lock file, in the user's cache
# folder, and prints the folder with node_modules. What DIR/.npmrc sets counts. No script of a
# package runs. One process installs at a time; the others wait for it.
# Usage: npm.sh DIR
set -euo pipefail
cd "$1"
files=(package.json package-lock.json)
[[ -f .npmrc ]] && files+=(.npmrc)
base=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast-test/npm
mkdir -p "$base"
exec 9>"$base/lock"
flock 9
target=$base/$(cat "${files[@]}" | sha256sum | cut -c1-16)
if [[ ! -d $target ]]; then
	fresh=$(mktemp -d "$base/installing-XXXXXX")
	trap 'rm -rf "$fresh"' EXIT
	cp "${files[@]}" "$fresh"
	(cd "$fresh" && npm ci --ignore-scripts --no-audit --no-fund --prefer-offline >&2 9>&-)
	mv "$fresh" "$target"
	trap - EXIT
fi
echo "$target"
