# The commands are `make run`, `make cluster` and `make test`. All need root, Rust and Go; they install the rest.
SHELL := /bin/bash
CARGO ?= cargo
# Beside the checkout's own target: what `make run` starts. `make run PROFILE=release` builds it as it is shipped.
PROFILE ?= dev
PROFILE_DIR := $(if $(filter dev,$(PROFILE)),debug,$(PROFILE))

.PHONY: run test cluster conformance bench fuzz lint fmt deny packages peers help

help: ## This text.
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

run: packages ## Build, start a node without a cluster (private containerd, a sample pod) and show it. Ctrl-C ends it.
	@echo "==> building bulkhead ($(PROFILE))" >&2
	@$(CARGO) build --locked --profile $(PROFILE) --workspace --bin bulkhead
	@echo "==> building containerd, runc and crictl (minutes the first time, kept for the next)" >&2
	@peers="$$(tests/peers/build)" && exec target/$(PROFILE_DIR)/bulkhead up --containerd private --peers "$$peers" --demo $(UP_FLAGS)

test: ## Every test that CI runs.
	@tools/ensure-packages cluster
	@echo "==> building the real peers (a quarter of an hour the first time, a control plane among them, kept for the next)" >&2
	@tests/peers/build cluster >/dev/null
	@echo "==> cargo test" >&2
	@BULKHEAD_PEERS="$$(tests/peers/build cluster)" $(CARGO) test --locked --workspace

# Where the cluster is; `live down` of it clears up after one that was killed.
CLUSTER_DIR ?= /var/lib/bulkhead-cluster

cluster: ## Build, start a whole cluster with this node in it, and tell how to use kubectl. Ctrl-C ends it.
	@tools/ensure-packages cluster
	@echo "==> building bulkhead ($(PROFILE))" >&2
	@$(CARGO) build --locked --profile $(PROFILE) --workspace --bin bulkhead --bin mkimage
	@echo "==> building the control plane and containerd (minutes the first time, kept for the next)" >&2
	@peers="$$(tests/peers/build cluster)" && export PEERS="$$peers" PATH="$$peers:$$PATH" && \
	  export BULKHEAD=target/$(PROFILE_DIR)/bulkhead MKIMAGE=target/$(PROFILE_DIR)/mkimage IMAGES=target/images && \
	  tests/conformance/images $$IMAGES >/dev/null && exec tests/cluster/live run $(CLUSTER_DIR)

conformance: ## Kubernetes' own suite against such a cluster: make conformance [FOCUS=...] (results in target/conformance).
	@tools/ensure-packages conformance
	@echo "==> building bulkhead ($(PROFILE))" >&2
	@$(CARGO) build --locked --profile $(PROFILE) --workspace --bin bulkhead --bin mkimage
	@echo "==> building the control plane and the suite (half an hour the first time, kept for the next)" >&2
	@peers="$$(tests/peers/build conformance)" && export PEERS="$$peers" PATH="$$peers:$$PATH" && \
	  export BULKHEAD=$(CURDIR)/target/$(PROFILE_DIR)/bulkhead MKIMAGE=$(CURDIR)/target/$(PROFILE_DIR)/mkimage && \
	  exec tests/conformance/conformance target/conformance $(if $(FOCUS),'$(FOCUS)')

# `release`, not `dist`: thin LTO takes minutes, and the ratios are within one build.
bench: packages ## Pods through bulkhead and straight over CRI; the table goes to docs/bench.md.
	@echo "==> building bulkhead and its benchmark (release)" >&2
	@$(CARGO) build --locked --release -p bulkhead -p bulkhead-bench
	@export BULKHEAD_PEERS="$${BULKHEAD_PEERS:-$$(tests/peers/build)}" && \
	  target/release/bulkhead-bench --json target/bench.json --document docs/bench.md $(BENCH_FLAGS) && \
	  target/release/bulkhead-bench --fake --json target/growth.json --document docs/bench.md

MINUTES ?= 5
fuzz: ## Fuzz one target: make fuzz TARGET=manifest (docs/fuzzing.md; needs cargo-fuzz and a nightly compiler).
	@test -n "$(TARGET)" || { echo "which one? TARGET=... of: $$(ls fuzz/seeds | tr '\n' ' ')" >&2; exit 2; }
	@mkdir -p fuzz/corpus/$(TARGET)
	@$(CARGO) +nightly fuzz run --release --debug-assertions $(TARGET) fuzz/corpus/$(TARGET) fuzz/seeds/$(TARGET) -- \
	  -max_total_time=$$(($(MINUTES) * 60)) -malloc_limit_mb=256 -rss_limit_mb=2048

lint: ## Formatting, lints as errors, and the crates alone that must stay small.
	@echo "==> format and lints" >&2
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

fmt: ## Format the code.
	@$(CARGO) fmt --all

deny: ## Licences, bans and sources (needs cargo-deny).
	@$(CARGO) deny check licenses bans sources

packages: ## Install the Debian packages that are missing.
	@tools/ensure-packages

peers: ## Build the real peers that tests run against.
	@tests/peers/build >/dev/null
