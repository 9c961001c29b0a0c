# What a newcomer, a developer and the CI job type. Every target installs what it lacks (scripts/toolchain), or says
# exactly what that is. `make` alone lists the targets.

export PATH := $(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
WARMCORE := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)/release/warmcore
DEMO := $(WARMCORE:/release/warmcore=/demo/warmcore)
FUZZ_SECONDS := 20
MDBOOK := 0.4.52
# What `install`, `dist` and `wheel` are made of: what cargo built with this profile.
PROFILE := release
PROGRAMS := $(WARMCORE:/release/warmcore=/$(PROFILE))
PREFIX := /usr/local
DIST := target/dist
# What `--version` says.
COMMIT = WARMCORE_COMMIT=$$(git describe --always --dirty --abbrev=12 2>/dev/null)
# One line for each test that lacked something (crates/testing).
SKIPPED := $(CURDIR)/target/skipped.txt

.DEFAULT_GOAL := help
.PHONY: help build demo install dist wheel python test quick bench lint deny docs fuzz-short page

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

build: ## build target/release/warmcore, and beside it the recorder and the loader of our BPF programs
	@scripts/toolchain build
	$(COMMIT) cargo build --profile $(PROFILE) --locked --package warmcore --package warmcore-scx-programs

demo: ## build without the program of guests and without machine code of BPF programs, then ask what cache-aware scheduling wins, and whose requests wait
	@scripts/toolchain build
	WARMCORE_WITHOUT_AGENT=yes cargo build --profile demo --locked --package warmcore --no-default-features
	@echo
	$(DEMO) machine show gnr72
	@echo
	$(DEMO) compare --machine gnr72 --workload verilator:-t8,-C10000 --schedulers eevdf,cache-aware,ule

install: ## copy what `make build` built to PREFIX (/usr/local), below DESTDIR if that is given: programs, manual pages, completions
	scripts/stage $(PROGRAMS) $(DESTDIR)$(PREFIX)

dist: build ## archive, Debian package, list of components and checksums in target/dist
	scripts/dist $(PROGRAMS) $(DIST)

wheel: ## a wheel with the Python package and the program in target/wheels; pip installs it without a compiler
	@scripts/toolchain build
	cargo build --profile $(PROFILE) --locked --package warmcore-scx-programs
	$(COMMIT) scripts/wheel $(PROGRAMS) $(PROFILE)

python: wheel ## run the Python package's tests with the wheel
	scripts/python-tests target/wheels/warmcore-*.whl

test: ## run the whole test suite; at its end it says what was skipped, which fails where CI is `true`
	@scripts/toolchain build vm page tools
	@mkdir -p target && rm -f $(SKIPPED)
	cargo test --workspace --locked --no-run
	@# Whatever test comes first finds a kernel here. Where none can be had, those that need one say why.
	-@$(WARMCORE:/release/warmcore=/debug/warmcore) doctor vm --fetch-kernel >/dev/null
	@# The page's tests run beside the others, which leave a processor idle at times. Properties draw the same cases each
	@# time, so that a change fails for what it changes; `cargo test` draws others each time. All suites run, whatever fails.
	WARMCORE_SKIPPED=$(SKIPPED) scripts/page-test >target/page-test.log 2>&1 & \
	WARMCORE_SKIPPED=$(SKIPPED) PROPTEST_RNG_SEED=1 cargo test --workspace --locked --no-fail-fast; tests=$$?; \
	wait $$!; pages=$$?; cat target/page-test.log; [ $$tests$$pages = 00 ]
	@if [ -s $(SKIPPED) ]; then echo "$$(wc -l <$(SKIPPED)) skipped:"; cat $(SKIPPED); else echo 'nothing was skipped'; fi

quick: ## before every commit: formatting, clippy, the tests that fail first; under 2 minutes on two cores when warm
	@scripts/toolchain build lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	@# Unit tests of every crate; of the program, the suites on the crates' arrows, bad input, commands, results, streams and the README.
	cargo test --workspace --locked --lib --bins
	cargo test --package warmcore --locked --test suite -- arrows:: bad_input:: commands:: readme:: results_index:: streams::
	scripts/golden-traces $(WARMCORE:/release/warmcore=/debug/warmcore)

page: ## build the report page's script and style sheet (web/built) from web/src
	@scripts/toolchain page
	cd web && npm ci --silent && npm run --silent check && npm run --silent build

bench: ## measure the simulator's speed
	@scripts/toolchain build
	cargo bench --workspace --locked

lint: ## the pages' English, formatting, clippy, documentation, all without warnings
	@scripts/toolchain build lint prose
	scripts/prose
	cargo fmt --all --check
	@# Clippy needs no program of guests, and would build one of its own. The Python package is empty without its feature, which needs no Python.
	WARMCORE_WITHOUT_AGENT=yes PYO3_NO_PYTHON=1 PYO3_BUILD_EXTENSION_MODULE=1 \
		cargo clippy --workspace --all-targets --features warmcore-python/extension --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked
	@# What `make demo` builds, which lacks features of the others.
	WARMCORE_WITHOUT_AGENT=yes cargo clippy --package warmcore --no-default-features --locked -- -D warnings

deny: ## licences and advisories of all dependencies (builds cargo-deny once, some minutes)
	@scripts/toolchain build
	@cargo deny --version 2>/dev/null || cargo install --locked --quiet cargo-deny
	cargo deny check

docs: build ## the manual (docs/ with search) in target/manual, API documentation in target/doc, manual pages in target/man
	@mdbook --version 2>/dev/null || cargo install --locked --quiet mdbook@$(MDBOOK) --no-default-features --features search
	mdbook build docs
	cargo doc --workspace --no-deps --locked
	$(WARMCORE) reference man --out target/man

fuzz-short: ## every fuzz target for FUZZ_SECONDS seconds
	@scripts/toolchain build fuzz
	scripts/fuzz-short $(FUZZ_SECONDS)
