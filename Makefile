# Every task by name. `make` lists them.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

# Where cargo puts debug builds.
DEBUG := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/debug

# What `make test` does, in order: what fails fast comes first.
STEPS := fmt layers clippy doc deny tools suite suite-etcd clients

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
	PINTLE_CONTROL_PLANE=1 tools/test --workspace

.PHONY: suite-etcd
suite-etcd: ## the integration tests again, on a real etcd
	# Those that choose their servers themselves have been seen by then.
	PINTLE_BACKEND=etcd tools/test --workspace --test all -- --skip on_etcd:: --skip migrate:: --skip storage:: --skip control_plane::

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

.PHONY: bench-check
bench-check: ## has a fixed piece of work grown by more than 5 % in instructions? (valgrind; not part of `make test`)
	tools/bench-check

.PHONY: tools
tools: ## the programs that the tests use: etcd, kubectl, helm, client-go, envtest, kube-controller-manager and others
	tools/build etcd kubectl kubectl-1.32 helm helm-3 informer envtest sample-apiserver metrics-server kubelet \
	    kube-controller-manager kube-scheduler

.PHONY: peer
peer: tools ## the real kube-apiserver, to compare with (takes a while)
	tools/build kube-apiserver

.PHONY: control-plane
control-plane: ## workloads on kube-controller-manager and kube-scheduler, with stand-in nodes
	tools/build kubectl kube-controller-manager kube-scheduler
	PINTLE_CONTROL_PLANE=1 cargo test --workspace --test all control_plane:: -- --nocapture

.PHONY: clients
clients: ## the Python, JavaScript and Java clients, where their languages are there (downloads them)
	cargo build --workspace --bin pintle --quiet
	tools/clients/run

.PHONY: controller-runtime
controller-runtime: ## controller-runtime's own suites on the assets of `pintle envtest` (builds them: takes a while)
	tools/build kubectl
	cargo build --release
	PINTLE_BIN=$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/release/pintle tools/controller-runtime

.PHONY: controller-runtime-peer
controller-runtime-peer: ## the same suites on kube-apiserver and etcd, to compare
	tools/build etcd kubectl kube-apiserver
	tools/controller-runtime peer

.PHONY: e2e
e2e: ## Kubernetes' end-to-end tests that need no kubelet (builds them: takes long)
	tools/build e2e.test ginkgo kubectl kube-controller-manager kube-scheduler
	cargo build --workspace --bin pintle --example stand_in_nodes --quiet
	tools/e2e/run list
	PINTLE_BIN=$(DEBUG)/pintle NODES_BIN=$(DEBUG)/examples/stand_in_nodes tools/e2e/run

.PHONY: cert-manager
cert-manager: ## cert-manager's webhook, set up by its own chart (builds it: takes minutes)
	tools/build cert-manager-webhook cert-manager helm kubectl
	PINTLE_CERT_MANAGER=1 cargo test --workspace --test all cert_manager:: -- --nocapture

.PHONY: kubectl-suite
kubectl-suite: ## Kubernetes' own tests of kubectl (test/cmd), over etcd
	tools/build etcd kubectl kubectl-convert kube-controller-manager
	cargo build --workspace --bin pintle --quiet
	PINTLE_BIN=$(DEBUG)/pintle tools/kubectl-suite/run

.PHONY: dist
dist: ## a static binary with its manual page, completions, unit and SBOM, as dist/*.tar.gz
	tools/dist

.PHONY: image
image: dist ## a container image from scratch with that binary
	docker build --build-arg DIST=dist/$$(readlink dist/current) --tag pintle .

.PHONY: clean
clean: ## remove what was built
	cargo clean
	rm -rf tools/bin dist
