# Every task by name. `make` lists them.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

# What `make test` does, in order: what fails fast comes first.
STEPS := fmt layers clippy doc deny tools suite suite-etcd

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## start the server: no flags, no files needed
	cargo run --release

.PHONY: test
test: ## everything CI does, with the seconds each step took
	@for step in $(STEPS); do \
	    began=$$SECONDS; \
	    echo "== $$step"; \
	    $(MAKE) $$step || { echo "== $$step failed after $$((SECONDS - began)) s"; exit 1; }; \
	    report+=$$(printf '\n%5d s  %s' $$((SECONDS - began)) $$step); \
	done; \
	echo "== all passed$$report"

.PHONY: lint
lint: fmt layers clippy doc deny ## everything but the tests

.PHONY: fmt
fmt: ## is the code formatted?
	cargo fmt --all --check

.PHONY: clippy
clippy: ## clippy on all targets, warnings are errors
	cargo clippy --workspace --all-targets --all-features --quiet -- -D warnings

.PHONY: doc
doc: ## does the documentation build without a broken link?
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --quiet

.PHONY: layers
layers: ## does every crate depend only on those it may?
	tools/layers

# The advisory database is a git repository, the rest needs nothing but Cargo.lock. Where only
# package registries can be reached, the advisories are left out rather than the whole check.
.PHONY: deny
deny: ## licences, bans, sources and, when reachable, advisories
	tools/build cargo-deny
	tools/bin/cargo-deny --log-level error check --hide-inclusion-graph licenses bans sources
	@if timeout 60 tools/bin/cargo-deny --log-level off fetch db; then \
	    tools/bin/cargo-deny --offline check advisories; \
	else \
	    echo "advisories NOT checked: their database cannot be reached from here"; \
	fi

.PHONY: suite
suite: ## all tests, on the embedded store
	cargo test --workspace --quiet

.PHONY: suite-etcd
suite-etcd: ## the integration tests again, on a real etcd
	# Those that choose their servers themselves have been seen by then.
	PINTLE_BACKEND=etcd cargo test --workspace --quiet --test all -- --skip on_etcd:: --skip migrate:: --skip storage::

# How many times as long as in the suite: 20 is a kill loop of 1000 rounds.
PROVE ?= 20

.PHONY: prove
prove: tools ## the proofs of the store at length: kills, crashes, failing disks and members
	PINTLE_PROVE=$(PROVE) cargo test --package store --package etcd --quiet
	PINTLE_PROVE=$(PROVE) cargo test --workspace --test all proof:: -- --test-threads 1 --nocapture

.PHONY: abuse
abuse: ## hostile requests at full size against the release binary, each with its bounds
	cargo build --release
	PINTLE_ABUSE=full PINTLE_BIN=$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/release/pintle \
	    cargo test --workspace --test all abuse -- --test-threads 1 --nocapture

.PHONY: unit
unit: ## the tests beside the code
	cargo test --workspace --lib --bins

.PHONY: integration
integration: ## the tests over HTTP with real clients, on the embedded store
	cargo test --workspace --test all

.PHONY: integration-peer
integration-peer: peer ## the same tests against the real kube-apiserver: a test that fails here is wrong
	PINTLE_PEER=$(CURDIR)/tools/bin/kube-apiserver cargo test --workspace --test all -- --include-ignored

.PHONY: fuzz
fuzz: ## damaged input for every decoder, a minute each (SECONDS_EACH=3600: longer)
	cargo run --release --package fuzz -- all --seconds $(or $(SECONDS_EACH),60)

.PHONY: bench
bench: ## the benchmarks
	cargo bench --package benches

.PHONY: tools
tools: ## etcd, two kubectls and an informer for the tests
	tools/build etcd kubectl kubectl-1.32 informer sample-apiserver

.PHONY: peer
peer: tools ## the real kube-apiserver and its controllers, to compare with (takes a while)
	tools/build kube-apiserver kube-controller-manager

.PHONY: clean
clean: ## remove what was built
	cargo clean
	rm -rf tools/bin
