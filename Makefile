# The two commands are `make run` and `make test`. Both need root, Rust and Go; they install the rest.
SHELL := /bin/bash
CARGO ?= cargo
# Beside the checkout's own target: what `make run` starts. `make run PROFILE=release` builds it as it is shipped.
PROFILE ?= dev
PROFILE_DIR := $(if $(filter dev,$(PROFILE)),debug,$(PROFILE))

.PHONY: run test bench fuzz lint fmt deny packages peers help

help: ## This text.
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

run: packages ## Build, start a node without a cluster (private containerd, a sample pod) and show it. Ctrl-C ends it.
	@echo "==> building bulkhead ($(PROFILE))" >&2
	@$(CARGO) build --locked --profile $(PROFILE) --workspace --bin bulkhead
	@echo "==> building containerd, runc and crictl (minutes the first time, kept for the next)" >&2
	@peers="$$(tests/peers/build)" && exec target/$(PROFILE_DIR)/bulkhead up --containerd private --peers "$$peers" --demo $(UP_FLAGS)

test: ## Every test that CI runs.
	@tools/ensure-packages cluster
	@echo "==> building the real peers (minutes the first time, an API server among them, kept for the next)" >&2
	@tests/peers/build apiserver >/dev/null
	@echo "==> cargo test" >&2
	@BULKHEAD_PEERS="$$(tests/peers/build apiserver)" $(CARGO) test --locked --workspace

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
