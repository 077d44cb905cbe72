# Holdfast. `make` lists the targets. Nothing needs to be there but Go, git and
# make; race wants a C compiler, conformance npm. Tools are built into bin/tools.

GO       ?= go
ALL_TAGS := conformance,faults
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  := -s -w -X main.version=$(VERSION)

# Bounds of one run; raise them on the command line.
TEST_TIMEOUT   ?= 10m
RACE_TIMEOUT   ?= 15m
LONG_TIMEOUT   ?= 50m
FUZZTIME       ?= 10s
BENCHTIME      ?= 1s
CHAOS_ROUNDS   ?= 5
CHAOS_FOR      ?= 2h
CHAOS_FROM     ?= 1
CHAOS_SEEDS    ?= 6
CHAOS_HANGS    ?= 300
CHAOS_CUTS     ?= 10m
CHAOS_CUTS_CI  ?= 1
SOAK_FOR       ?= 30m
SCALE          ?= 20000,200000,1000000

# go vet is a step of its own (make vet), with every check and every tag: again for
# the packages of each test run it would cost a minute on a machine without a cache. A
# binary without DWARF is linked faster; the stack of a panic has its lines all the same.
TEST := $(GO) test -vet=off -ldflags=-w

# One test of a target, for `make timings` and for whoever looks at one: ONLY is a regular
# expression of names, PKGS the packages.
ONLY_FLAG = $(if $(ONLY),-run '$(ONLY)')

# Packages whose tests run code of several goroutines at once.
# The state machine and its codecs have no goroutines: go test ./... is enough for them.
RACE ?= ./cluster/ingest ./storage/... ./api/... ./cluster/... ./consensus ./consensus/transport ./peer/...
# Some of them with many goroutines on common data, which build and run quickly: for CI.
RACE_CI ?= ./consensus/transport ./api/internal/web
# Left to make test and to make race-all: tests of much memory, of one goroutine (every byte and
# bit in turn, models, histories), and hours of virtual time, which take the race detector a
# third of its time and show it nothing that other tests do not.
RACE_SKIP ?= ^(Fuzz|TestTenThousandRootsInLittleMemory|TestTornTailIsCutOffAtEveryByte|TestFlippedBitIsNeverServed|TestNoFlipIsEverServed|TestStoreBehavesLikeAMap|TestTenThousandCommandsLeadToOneState|TestNoFlippedBitOfTheLogIsEverRead|TestTransactionsAreThoseOfAMap|TestMembersThatKnowNoBeats|TestOneLeaderThroughLossAndPauses|TestOneLeaderWhereMembersAreFarApart|TestSmallWalksHaveRoomBesideTheLargest|TestFlippedBitsOf|TestNoncesDoNotRepeat|TestWhoIsSaidToHoldContentHasIt|TestASlowMemberLeavesOthersRoom|TestWhatALateNodeWasNotGiven)
BENCH ?= ./...

GOLANGCI_VERSION := v2.15.0
GOLANGCI         := bin/tools/golangci-lint-$(GOLANGCI_VERSION)

NFPM_VERSION := v2.48.0
NFPM         := bin/tools/nfpm-$(NFPM_VERSION)

# The stock IPFS node that test/conformance drives; its version is in KUBO_MODULE/go.mod.
KUBO        := bin/tools/ipfs
KUBO_MODULE := test/conformance/testdata/kubo

# No cgo: the binary runs on any Linux, and no C compiler is needed to test.
export CGO_ENABLED := 0
# For everything alike, so that what the tests compile is what the binary is
# linked from, and a machine without a cache compiles all of it once.
export GOFLAGS := $(GOFLAGS) -trimpath -buildvcs=false

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## bin/holdfast
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/holdfast ./cmd/holdfast

.PHONY: packages
packages: $(NFPM) ## dist/: deb, rpm and tar.gz for amd64 and arm64 (ARCHS), and their checksums
	GO=$(GO) NFPM=$(NFPM) deploy/packages/build

.PHONY: image
image: ## dist/image/: container images for amd64 and arm64 (ARCHS), as OCI archives; needs no container engine
	GO=$(GO) deploy/container/build

.PHONY: image-check
image-check: ## builds the images twice, and runs them and the compose file with ENGINE (podman), as root
	GO=$(GO) deploy/container/check

$(NFPM):
	mkdir -p bin/tools
	GOBIN=$(CURDIR)/bin/tools $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
	mv bin/tools/nfpm $@

# What takes longest begins first.
.PHONY: test
test: ## every test that needs nothing but Go
	$(TEST) -timeout $(TEST_TIMEOUT) -parallel 8 $(ONLY_FLAG) $(or $(PKGS),./test/cluster ./...)

.PHONY: quick
quick: ## what has changed since the last commit (or BASE), in about a minute
	.ci/quick

.PHONY: check
check: ## all that CI runs, on this machine
	.ci/run

# What is too long, or too large, for CI; docs/testing.md has the last result of each line.
.PHONY: check-long
check-long: lint packages image-check race-all conformance-long console-long faults bench-short fuzz chaos ## what CI leaves out, in some hours

.PHONY: settings
settings: ## docs/settings.md, from the table in config
	$(TEST) -count 1 -run '^TestThePageOfSettings' ./config -update

.PHONY: timings
timings: ## wall and processor time of each step of CI and of the 50 slowest tests, in half an hour or so (TIMINGS_FLAGS="-steps test,race")
	$(GO) run ./test/timings $(TIMINGS_FLAGS)

.PHONY: vet
vet: ## go vet, with every build tag
	$(GO) vet -tags $(ALL_TAGS) ./...

.PHONY: arch
arch: ## the rules about the shape of the source
	$(TEST) ./test/arch

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint, built on first use
	GOMEMLIMIT=3GiB $(GOLANGCI) run --concurrency 2 ./...

.PHONY: lint-ci
lint-ci: vet ## the short form of lint: gofmt and go vet
	@files=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$files" ] || { echo "lint-ci: run gofmt -w on $$files" >&2; exit 1; }

$(GOLANGCI):
	mkdir -p bin/tools
	GOBIN=$(CURDIR)/bin/tools $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/tools/golangci-lint $@

.PHONY: race
race: ## the packages with concurrency, under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(TEST) -race -skip '$(RACE_SKIP)' -timeout $(RACE_TIMEOUT) $(ONLY_FLAG) $(or $(PKGS),$(RACE))

.PHONY: race-ci
race-ci: ## the same for some of them, as CI runs it
	$(MAKE) race RACE='$(RACE_CI)'

.PHONY: race-all
race-all: ## every package under the race detector, with the tests that race leaves out
	CGO_ENABLED=1 $(TEST) -race -timeout 3h ./...

# Lines of file:declaration for every fuzz target. The path begins with ./
FUZZ_FIND = grep -roE --include='*_test.go' --exclude-dir='.?*' --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9_]+' . | sort

.PHONY: fuzz-seeds
fuzz-seeds: ## the seeds and past finds of every fuzz target
	@dirs=$$($(FUZZ_FIND) | cut -d: -f1 | xargs -r -n 1 dirname | sort -u); \
	[ -z "$$dirs" ] || $(TEST) -timeout $(TEST_TIMEOUT) -run '^Fuzz' $$dirs

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (10s)
	@$(FUZZ_FIND) | while IFS=: read -r file decl; do \
		name=$${decl#func }; dir=$$(dirname "$$file"); \
		echo "== $$dir $$name"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 2s "$$dir" || exit 1; \
	done

.PHONY: demo
demo: build ## three nodes on this machine, one tour, until Ctrl-C
	$(GO) build -o bin/foreign ./test/foreign
	@trap : INT; HOLDFAST_DEMO_PEER=$(CURDIR)/bin/foreign bin/holdfast demo $(DEMO_FLAGS)

.PHONY: smoke
smoke: build ## one cluster of three processes, under a minute
	HOLDFAST_BIN=$(CURDIR)/bin/holdfast $(TEST) -count 1 -tags $(ALL_TAGS) -timeout 5m $(ONLY_FLAG) ./test/smoke

$(KUBO): $(KUBO_MODULE)/go.mod $(KUBO_MODULE)/go.sum
	$(GO) build -C $(KUBO_MODULE) -ldflags '-s -w' -o $(CURDIR)/$@ github.com/ipfs/kubo/cmd/ipfs
	touch $@

.PHONY: conformance
conformance: build ## black-box suites against three processes (needs npm)
	HOLDFAST_BIN=$(CURDIR)/bin/holdfast $(TEST) -count 1 -tags $(ALL_TAGS) -timeout $(LONG_TIMEOUT) -parallel 6 $(ONLY_FLAG) ./test/conformance/...

.PHONY: clients
clients: ## the JavaScript clients that conformance drives (npm), once per lock file
	test/harness/npm.sh test/conformance/testdata/js

.PHONY: conformance-long
conformance-long: build $(KUBO) ## the same in full length, and with Kubo, which is built for it
	HOLDFAST_BIN=$(CURDIR)/bin/holdfast $(TEST) -count 1 -tags $(ALL_TAGS) -timeout 3h -parallel 6 $(ONLY_FLAG) ./test/conformance -long

.PHONY: console
console: build ## the web console in a real browser (needs Chromium and npm)
	HOLDFAST_BIN=$(CURDIR)/bin/holdfast $(TEST) -count 1 -tags $(ALL_TAGS) -timeout $(LONG_TIMEOUT) -parallel 6 $(ONLY_FLAG) ./test/console $(if $(PICTURES),-pictures $(PICTURES))

.PHONY: console-long
console-long: build ## all pages and flows in all looks, with 10,000 files and one of 20 GiB through the browser
	HOLDFAST_BIN=$(CURDIR)/bin/holdfast $(TEST) -count 1 -tags $(ALL_TAGS) -timeout 2h -v ./test/console -long

.PHONY: console-pictures
console-pictures: ## docs/console: a screenshot of every page, of 100 kB at most (needs Chromium, npm and pngquant)
	@command -v pngquant >/dev/null || { echo 'console-pictures: pngquant is missing: apt-get install pngquant' >&2; exit 1; }
	$(MAKE) console PICTURES=$(CURDIR)/docs/console
	pngquant --force --ext .png --speed 1 docs/console/*.png
	chmod 644 docs/console/*.png
	@large=$$(find docs/console -name '*.png' -size +100000c); [ -z "$$large" ] || { echo "console-pictures: larger than 100 kB: $$large" >&2; exit 1; }

.PHONY: faults-ci
faults-ci: build ## disks that lose power, fill, hang and fail, and slow lines, in short (needs root, loop and TUN devices)
	HOLDFAST_BIN=$(CURDIR)/bin/holdfast $(TEST) -count 1 -tags $(ALL_TAGS) -timeout $(LONG_TIMEOUT) -parallel 4 $(ONLY_FLAG) ./test/faults

.PHONY: faults
faults: build ## the same in full length
	HOLDFAST_BIN=$(CURDIR)/bin/holdfast $(TEST) -count 1 -tags $(ALL_TAGS) -timeout $(LONG_TIMEOUT) -v ./test/faults -long

.PHONY: chaos-ci
chaos-ci: ## whole clusters in virtual time: CHAOS_SEEDS (6) seeds, a mistake that has to be found, and nine nodes under cuts
	$(TEST) -count 1 -timeout $(LONG_TIMEOUT) -run '^Test(ClustersSurvive|DeliberateMistakes)' -v ./test/chaos -seeds $(CHAOS_SEEDS)
	$(TEST) -count 1 -timeout $(LONG_TIMEOUT) -run '^TestClustersSurvive' -v ./test/chaos -scenario 'nine nodes under cuts' -seeds $(CHAOS_CUTS_CI)

.PHONY: chaos
chaos: build ## virtual time for CHAOS_FOR (2h) from seed CHAOS_FROM; then real processes that are killed and cut off, CHAOS_ROUNDS times
	$(GO) test -count 1 -timeout 0 -v ./test/chaos -long -for $(CHAOS_FOR) -from $(CHAOS_FROM)
	$(GO) test -count 1 -timeout 0 -run '^TestClustersSurvive' -v ./test/chaos -scenario 'two disks hang' -seeds $(CHAOS_HANGS)
	$(GO) test -count 1 -timeout 0 -run '^TestClustersSurvive' -v ./test/chaos -scenario 'disks are full' -seeds $(CHAOS_HANGS)
	$(GO) test -count 1 -timeout 0 -run '^TestClustersSurvive' -v ./test/chaos -scenario 'a leader is deposed beside a log that hangs' -seeds $(CHAOS_HANGS)
	$(MAKE) chaos-cuts
	HOLDFAST_BIN=$(CURDIR)/bin/holdfast $(TEST) -count $(CHAOS_ROUNDS) -tags $(ALL_TAGS) -timeout 0 -run '^(TestFirstLight|TestNothingAcknowledged|TestALeaderThatIsCutOff)' -v ./test/conformance -long
	$(GO) test -count 1 -timeout 20m -run '^(TestCollecting|TestAKill)' -v ./storage/blocks -collect 5m -kills 200
	$(GO) test -count 1 -timeout 20m -run '^TestCollecting' -v ./test/cluster -collect 5m
	$(GO) test -count 1 -timeout 20m -run '^TestNoPinIsLost' ./cluster/tracker -restart-seeds 60

.PHONY: chaos-cuts
chaos-cuts: ## nine nodes in virtual time whose lines are cut and held up, for CHAOS_CUTS (10m) from seed CHAOS_FROM
	$(GO) test -count 1 -timeout 0 -run '^TestClustersSurvive' -v ./test/chaos -scenario 'nine nodes under cuts' -for $(CHAOS_CUTS) -from $(CHAOS_FROM)

# -only GROUP, sizes such as -million 100000 and -url URL -token TOKEN go into
# BENCH_FLAGS; -help lists them.
.PHONY: bench
bench: bench-table bench-go ## all figures: real processes, then the Go benchmarks

.PHONY: bench-table
bench-table: build ## the table of real processes over HTTP, some minutes
	$(GO) build -o bin/foreign ./test/foreign
	HOLDFAST_BIN=$(CURDIR)/bin/holdfast HOLDFAST_FOREIGN_BIN=$(CURDIR)/bin/foreign $(GO) run ./test/bench $(BENCH_FLAGS)

.PHONY: bench-short
bench-short: ## the same in about a minute, with less of everything
	$(MAKE) bench-table BENCH_FLAGS=-short

.PHONY: scale
scale: ## what a pin, lists, a restart and a join cost with SCALE (20000,200000,1000000) pins
	$(MAKE) bench-table BENCH_FLAGS="-only scale -scale $(SCALE) $(BENCH_FLAGS)"

.PHONY: soak
soak: ## steady work for SOAK_FOR (30m) at half of the measured rate; memory, goroutines, files and disk must level off
	$(MAKE) bench-table BENCH_FLAGS="-only soak -soak $(SOAK_FOR) $(BENCH_FLAGS)"

.PHONY: bench-go
bench-go: ## every Go benchmark, with allocations
	$(GO) test -timeout $(LONG_TIMEOUT) -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) $(BENCH)

.PHONY: clean
clean: ## what make built
	rm -rf bin
