# Sourced by the builds in packages and container, in the root of the clone: sets DESCRIBED (the tag, and what follows it;
# empty before the first), COMMIT, and SOURCE_DATE_EPOCH, the time of the commit.
# shellcheck shell=bash disable=SC2034
DESCRIBED=$(git describe --tags 2>/dev/null) || DESCRIBED=
COMMIT=$(git rev-parse --short=8 HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# program builds bin/holdfast for an architecture: program ARCH FILE
program() {
	CGO_ENABLED=0 GOOS=linux GOARCH=$1 "${GO:-go}" build -trimpath -buildvcs=false \
		-ldflags "-s -w -X main.version=${DESCRIBED:-$COMMIT}" -o "$2" ./cmd/holdfast
}
