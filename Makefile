# What can be done with this checkout. `make help` lists it.
#
# Targets install what they need: Debian packages by tools/setup, Go tools from
# the Go module proxy. Nothing is skipped because a tool is missing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory

# Stages run in the order that they are written in: go uses all processors by
# itself, and a log in which stages mix helps nobody.
.NOTPARALLEL:

# mkfs and losetup are in sbin, which users do not have in their PATH; Go is
# where its own instructions put it, which sudo does not have.
export PATH := $(PATH):/usr/sbin:/sbin:/usr/local/go/bin

# A checkout that belongs to somebody else (root tests what a user cloned) has
# no readable version control, and go refuses to build where it expects one.
go_env = $(shell PATH='$(PATH)' go env $(1) 2>/dev/null)
export GOFLAGS := $(call go_env,GOFLAGS) -buildvcs=false

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# The linter is built by the Go that checks with it, and again when Go moves on.
GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(CURDIR)/bin/tools/golangci-lint-$(GOLANGCI_VERSION)-$(call go_env,GOVERSION)/golangci-lint

# RACE= (empty) turns the race detector off, for many seeds in little time.
RACE ?= -race

# Tests that ran are run again: they talk to a kernel, whose state is no input
# that go's cache of test results could know. Only check takes old results.
GO_TEST := go test $(RACE) -count=1

BENCH ?= .
COUNT ?= 1
SEEDS ?=
FIRST ?=

# A module of its own: what go does to the tree, it does there again.
MOCKDRIVER := test/e2e/mockdriver

# Another one, that only pins a program of other people.
SANITY := test/e2e/sanity

# What tests and the demo start. They never build it themselves.
export BERTH_BINARY := $(CURDIR)/bin/berth
export BERTH_MOCKDRIVER := $(CURDIR)/bin/mockdriver
export BERTH_CSI_SANITY := $(CURDIR)/bin/csi-sanity

# Every package whose tests are not a stage of their own.
unit_packages = go list ./... | grep -vE '/test/(arch|simulation|integration|e2e)(/|$$)'

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: setup-test build ## show what Berth does, on this machine (root)
	@test/demo/demo.sh

.PHONY: build
build: setup-build ## build bin/berth, one static binary
	CGO_ENABLED=1 go build -trimpath -tags netgo,osusergo \
		-ldflags '-linkmode external -extldflags -static -X main.version=$(VERSION)' -o $(BERTH_BINARY) ./cmd/berth

.PHONY: mockdriver
mockdriver: setup-build ## build bin/mockdriver, the CSI driver of the end-to-end tests
	cd $(MOCKDRIVER) && go build -trimpath -o $(BERTH_MOCKDRIVER) .

.PHONY: csi-sanity
csi-sanity: setup-build ## build bin/csi-sanity, the field's own check of CSI drivers
	cd $(SANITY) && go build -trimpath -o $(BERTH_CSI_SANITY) github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity

.PHONY: test
test: setup-test fmt-check vet lint arch unit fuzz sim integration e2e ## run every check and every test (root)

.PHONY: check
check: setup-test fmt-check vet lint arch ## run what is quick: the inner loop (root)
	packages=$$($(unit_packages)); go test $(RACE) -short $$packages

.PHONY: fmt
fmt: $(GOLANGCI) ## format the Go code
	$(GOLANGCI) fmt
	cd $(MOCKDRIVER) && $(GOLANGCI) fmt

.PHONY: fmt-check
fmt-check: setup-build ## check that the Go code is formatted
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then printf 'not formatted (make fmt):\n%s\n' "$$unformatted" >&2; exit 1; fi

.PHONY: vet
vet: setup-build ## go vet
	go vet ./...
	cd $(MOCKDRIVER) && go vet ./...

.PHONY: lint
lint: setup-lint $(GOLANGCI) ## golangci-lint with .golangci.yml, shellcheck
	shellcheck .ci/run tools/setup $$(find . -name '*.sh' -not -path './bin/*')
	status=0; for module in . $(MOCKDRIVER); do (cd $$module; $(GOLANGCI) run) || status=1; done; exit $$status

.PHONY: arch
arch: setup-build ## check the import rules and the documentation of packages
	$(GO_TEST) ./test/arch

.PHONY: unit
unit: setup-test ## test every package by itself (root)
	packages=$$($(unit_packages)); $(GO_TEST) $$packages

# Each fuzz target by itself, two at a time: they leave a processor to nobody.
# Those 28 take some eight minutes, as 23 did with 40 s. Below 30 s most of the
# time would go to what is known already.
.PHONY: fuzz
fuzz: setup-test ## fuzz every parser and decoder; FUZZTIME=30s for each
	grep -rl --include='*_test.go' '^func Fuzz' api internal | while read -r file; do \
		sed -n "s|^func \(Fuzz[A-Za-z]*\)(.*|$$(dirname $$file) \1|p" $$file; \
	done | sort | xargs -P 2 -L 1 sh -c \
		'go test -run "^$$" -fuzz "^$$1$$" -fuzztime $(or $(FUZZTIME),30s) -fuzzminimizetime 5s -parallel 1 ./$$0'

# The line with the result is held back until go has said its own.
result_last = awk '/^seeds [0-9]+ failed [0-9]+$$/ { result = $$0; next } { print; fflush() } END { if (result) print result }'

.PHONY: sim
sim: setup-build ## simulate clusters that break; SEEDS=n of them, FIRST=n to repeat from one
	cd test/simulation; $(if $(SEEDS),BERTH_SIM_SEEDS=$(SEEDS)) $(if $(FIRST),BERTH_SIM_FIRST=$(FIRST)) \
		$(GO_TEST) -timeout $(if $(SEEDS),0,20m) | $(result_last)

.PHONY: integration
integration: setup-test build mockdriver ## test the binary with real mounts and disks, and kill it (root)
	$(GO_TEST) -timeout 20m ./test/integration/...

# The line with the result is held back until go has said its own.
soak_last = awk '/^started [0-9]+ leaked_mounts / { result = $$0; next } { print; fflush() } END { if (result) print result }'

.PHONY: soak
soak: setup-test build ## start and stop 200 allocations at random and kill agents; MINUTES=n (root)
	cd test/integration; BERTH_SOAK_MINUTES=$(or $(MINUTES),10) $(GO_TEST) -timeout 0 -v -run '^TestSoak$$' . | $(soak_last)

.PHONY: kill-matrix
kill-matrix: setup-test build ## kill every process in every phase of a start and a stop, and fill the disk (root)
	cd test/integration; BERTH_KILL_MATRIX=all $(GO_TEST) -timeout 60m -v -run '^(TestKillMatrix|TestFullDisk)' .
	cd internal/localdriver; BERTH_KILL_MATRIX=all $(GO_TEST) -timeout 20m -run '^TestCrash_' .

.PHONY: e2e
e2e: setup-test build mockdriver csi-sanity ## test the binary from the outside: with the mock driver, and its own driver with csi-sanity (root)
	cd $(MOCKDRIVER) && $(GO_TEST) ./...
	$(GO_TEST) -timeout 20m ./test/e2e/...

# One package at a time: benchmarks that share the processors measure each other.
.PHONY: bench
bench: build ## run benchmarks, into bench.txt for benchstat; BENCH=regexp COUNT=n
	packages=$$(grep -rl --include='*_test.go' --exclude-dir=mockdriver '^func Benchmark' . | xargs -n 1 dirname | sort -u); \
		go test -p 1 -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 0 $$packages | tee bench.txt

.PHONY: clean
clean: ## remove what was built
	rm -rf bin bench.txt

$(GOLANGCI):
	GOBIN=$(@D) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

.PHONY: setup-build setup-lint setup-test
setup-build setup-lint setup-test: setup-%:
	@tools/setup $*
