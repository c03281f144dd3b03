# Every command a developer or CI needs. `make demo` and `make test` need nothing before them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PACKAGES := proxy protocol quotas config analysis tests bench deploy
# Else each process that a test starts compiles our modules, and pytest rewrites all of its own.
unexport PYTHONDONTWRITEBYTECODE
WITHOUT_SERVERS := not integration and not matrix and not spark
UNIT_MARKS := $(WITHOUT_SERVERS) and not slow
# One that hangs ends its worker process and is named: a signal would not get into uvloop, a thread for each is dear.
UNIT_OPTIONS := --ignore=tests/integration --timeout=0 -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true
UNIT := $(UNIT_OPTIONS) -m '$(UNIT_MARKS)'
UNIT_SHORT := $(UNIT_OPTIONS) -m '$(UNIT_MARKS) and not long'
UNIT_LONG := $(UNIT_OPTIONS) -m '$(UNIT_MARKS) and long'
# What the tests of a file share, a wheel or the names of all sources, is made once and not by each worker.
BY_FILE := -n auto --dist loadfile
COMPILED := $(VENV)-compiled
SOURCES := $(shell find analysis config protocol proxy quotas deploy/launcher -name '*.py')
OF_ANALYSIS := tests/analysis tests/bench
# Their files alone: to collect all tests, in each process, takes as long as to run some of them.
OF_SPARK := $(shell grep -rlE 'mark\.spark' tests --include='test_*.py')
# The folders with compiled modules (of runtime, the clock alone: left out), and what tests them from outside; not those that
# only call them.
OF_COMPILED := conformance deploy/test_compiled.py protocol proxy/edge proxy/session proxy/usage proxy/test_containment.py \
	proxy/test_session_faults.py quotas reference
NOT_OF_COMPILED := quotas/stores
PYTHONS := 3.12 3.13
# Tools of a release alone, in an environment of their own; deploy/constraints.txt pins them too.
RELEASE := $(VENV)-release
RELEASE_TOOLS := cibuildwheel cyclonedx-bom pip-audit pip-tools
LOCK := deploy/requirements.txt
BUILD_LOCK := deploy/build-requirements.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-unit test-fresh test-long compiled test-compiled coverage test-analysis test-pythons test-brokers test-integration-compiled \
	test-slow test-slow-unit test-slow-brokers test-slow-alone test-changed test-all lint format bench bench-analysis reliability soak matrix table dist wheels lock sbom audit man docs clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

# Downloads are tried three times, with a pause.
thrice = $(1) || { sleep 10; $(1); } || { sleep 30; $(1); }
define install
	@echo "installing Python packages into $(VENV) (about a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(call thrice,$(BIN)/pip install --quiet --disable-pip-version-check --constraint deploy/constraints.txt --editable '.[$(1)]')
endef

$(VENV)/.installed: pyproject.toml deploy/constraints.txt
	$(call install,dev)
	@touch $@ $(VENV)/.demo

# What the demo needs is half of it.
$(VENV)/.demo: pyproject.toml deploy/constraints.txt
	$(call install,demo)
	@touch $@

setup: $(VENV)/.installed  ## .venv, system packages and the jar cache that tests and benchmarks use
	$(BIN)/python -m tests.harness.setup

demo: $(VENV)/.demo  ## a real cluster, Sluice in front of it, clients being throttled (KEEP=1 leaves it running)
	$(BIN)/python -m tests.harness.setup demo
	$(BIN)/python -m deploy.demo $(if $(KEEP),--keep)

lint: $(VENV)/.installed  ## format, lint, types, import contracts
	$(BIN)/ruff format --check $(PACKAGES)
	$(BIN)/ruff check $(PACKAGES)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed  ## rewrite the sources in the house format
	$(BIN)/ruff check --fix-only $(PACKAGES)
	$(BIN)/ruff format $(PACKAGES)

test-unit: $(VENV)/.installed  ## the tests of the proxy that need no broker, but the long ones
	$(BIN)/pytest $(BY_FILE) $(UNIT_SHORT) $(OF_ANALYSIS:%=--ignore=%)

test-long: $(VENV)/.installed  ## the long ones: fuzzing, properties, many clients, whole processes
	$(BIN)/pytest $(BY_FILE) $(UNIT_LONG) $(OF_ANALYSIS:%=--ignore=%)

OF_TIME := tests/proxy/edge tests/proxy/runtime
test-fresh: $(VENV)/.installed  ## those of time, with a monotonic clock that begins at two seconds, as on a machine just started
	@for how in "unshare -T" "unshare -r -T"; do \
		if $$how true 2>/dev/null; then \
			exec $$how --monotonic=-$$(($$(cut -d. -f1 /proc/uptime) - 2)) $(BIN)/pytest -n auto $(UNIT_SHORT) $(OF_TIME); \
		fi; \
	done; echo "test-fresh skipped: time namespaces are not permitted here (unshare -T, unshare -r -T)"

# The wheel alone; the libraries are those of $(VENV). For tests gcc optimizes less: 89 s of CPU in place of 130.
$(COMPILED)/.installed: OPT_LEVEL := 1
$(COMPILED)/.optimized: OPT_LEVEL := 3
$(COMPILED)/.installed $(COMPILED)/.optimized: $(VENV)/.installed deploy/hatch_build.py $(SOURCES)
	rm -rf build/compiled $(COMPILED)
	SLUICE_OPT_LEVEL=$(OPT_LEVEL) $(BIN)/python -m hatchling build -t wheel -d build/compiled
	$(PYTHON) -m venv --without-pip $(COMPILED)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > `echo $(COMPILED)/lib/python*/site-packages`/libraries.pth
	$(BIN)/pip --python $(COMPILED) install --quiet --disable-pip-version-check --no-deps build/compiled/*.whl
	@touch $@

compiled: setup $(COMPILED)/.installed  ## the compiled wheel that tests use, in an environment of its own

test-compiled: compiled  ## those of what is compiled again, compiled (besides the time to compile it)
	SLUICE_EXPECT_COMPILED=1 $(COMPILED)/bin/python -m pytest $(BY_FILE) $(UNIT_OPTIONS) -m '$(WITHOUT_SERVERS)' $(OF_COMPILED:%=tests/%) $(NOT_OF_COMPILED:%=--ignore=tests/%)

coverage: $(VENV)/.installed  ## what the unit tests do not reach (measuring it takes as long again as the tests)
	$(BIN)/pytest $(UNIT) --cov --cov-report=term-missing:skip-covered

test-analysis: setup  ## those of the analysis and the benchmarks, with Spark
	$(BIN)/pytest $(BY_FILE) $(UNIT) $(OF_ANALYSIS)
	$(BIN)/pytest -n 2 --dist loadfile --timeout=900 -m 'spark and not integration and not matrix and not slow' $(OF_SPARK)

OF_BROKERS := $(shell grep -rlE 'mark\.integration' tests --include='test_*.py')
BROKERS := integration and not matrix
# Spark in front of a broker is slow; without one it is in test-analysis, and with one in the demo.
SLOW := (slow or spark)
# As Kafka's own build does: brokers on a busy machine may be late once. What fails twice fails; what passes the second
# time is in the summary, with what went wrong.
AGAIN := --reruns 1 -ra --rerun-show-tracebacks

test-brokers: setup  ## one of each kind against real brokers
	$(BIN)/pytest $(AGAIN) -n 4 --dist loadfile --no-loadscope-reorder -m '$(BROKERS) and not $(SLOW)' $(OF_BROKERS)

test-slow-unit: setup
	$(BIN)/pytest -n 2 --dist loadfile --timeout=900 -m 'slow and not integration and not matrix'

test-slow-brokers: compiled
	$(BIN)/pytest $(AGAIN) -n 2 --dist loadfile -m '$(BROKERS) and $(SLOW) and not alone' $(OF_BROKERS)

test-slow-alone: setup
	$(BIN)/pytest $(AGAIN) -m '$(BROKERS) and $(SLOW) and alone' $(OF_BROKERS)

test-integration-compiled: compiled  ## the same, compiled
	SLUICE_EXPECT_COMPILED=1 $(COMPILED)/bin/python -m pytest -m 'integration and not matrix'

test-pythons:  ## test-unit on the other versions of Python that pyproject.toml names, as far as they are there
	@for version in $(PYTHONS); do \
		if python$$version --version 2>/dev/null; then \
			$(MAKE) test-unit PYTHON=python$$version VENV=.venv-$$version || exit 1; \
		else echo "no python$$version here"; fi; \
	done

test: $(VENV)/.installed  ## everything but what is slow: lint, and all kinds of tests, three at a time
	@$(BIN)/python -m tests.parts test

test-slow: $(VENV)/.installed  ## the slow ones, which continuous integration runs after `make test`
	@$(BIN)/python -m tests.parts slow

test-changed: lint  ## lint, and the unit tests that this branch's changes can break
	@files=`$(BIN)/python -m tests.changed` && { test -z "$$files" || $(BIN)/pytest -n auto $(UNIT_SHORT) $$files; }

test-all: test test-slow test-pythons test-integration-compiled  ## and other examples of the unit tests, and the whole matrix of clients, brokers and long runs
	$(BIN)/pytest -n auto $(UNIT) --hypothesis-profile=explore
	$(BIN)/pytest -m matrix

bench: setup $(COMPILED)/.optimized  ## HAProxy and Sluice side by side, compiled and not; text and bench/results/*.json
	$(BIN)/python -m bench

bench-analysis: setup  ## what `sluice analyze` costs on generated records (SCALE=100M: 100 million)
	$(BIN)/python -m bench.analysis $(if $(SCALE),--scale $(SCALE))

reliability: setup  ## a ledger of records through faults: docs/reliability.md (ONLY=F9,F14 SECONDS=30 SEED=1 COMBINATIONS=20)
	$(BIN)/python -m bench.reliability $(if $(ONLY),--only $(ONLY)) $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(SEED),--seed $(SEED)) $(if $(COMBINATIONS),--combinations $(COMBINATIONS))

soak: setup  ## two instances under mixed load with a fault a minute, for HOURS=2.5: docs/reliability.md
	$(BIN)/python -m bench.reliability.soak $(if $(HOURS),--hours $(HOURS)) $(if $(SEED),--seed $(SEED))

matrix: setup  ## each client at real brokers, direct and through Sluice: the tables of docs/clients.md
	$(BIN)/python -m bench.clients

table: setup  ## generate the API table from the kafka-clients jars
	$(BIN)/python -m protocol.generate

dist: $(VENV)/.installed  ## sdist, and the wheel with the hot modules compiled for this Python and platform, of the last commit
	rm -rf build/commit && mkdir -p build/commit dist
	git archive HEAD | tar -x -C build/commit
	cd build/commit && $(CURDIR)/$(BIN)/python -m hatchling build -d $(CURDIR)/dist

$(RELEASE)/.installed: deploy/constraints.txt
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --constraint deploy/constraints.txt $(RELEASE_TOOLS)
	@touch $@

wheels: dist $(RELEASE)/.installed  ## wheels for manylinux, x86-64 and arm64, of the last commit (needs Docker or Podman)
	$(RELEASE)/bin/cibuildwheel --platform linux --output-dir dist build/commit

PIP_COMPILE := CUSTOM_COMPILE_COMMAND='make lock' $(RELEASE)/bin/pip-compile --quiet --generate-hashes --allow-unsafe \
	--strip-extras --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	--constraint deploy/constraints.txt

lock: $(RELEASE)/.installed  ## rewrite deploy/*requirements.txt: the proxy's libraries, and what builds it, with hashes
	$(PIP_COMPILE) --output-file $(LOCK) pyproject.toml
	$(PIP_COMPILE) --build-deps-for wheel --only-build-deps --output-file $(BUILD_LOCK) pyproject.toml

sbom: $(RELEASE)/.installed  ## dist/kafka-sluice.cdx.json: the locked libraries and their licences (CycloneDX)
	rm -rf build/locked && mkdir -p dist
	$(PYTHON) -m venv --without-pip build/locked
	$(RELEASE)/bin/pip --python build/locked install --quiet --disable-pip-version-check --require-hashes --requirement $(LOCK)
	$(RELEASE)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-file dist/kafka-sluice.cdx.json build/locked

audit: $(RELEASE)/.installed  ## known vulnerabilities of the locked libraries; fails too if one cannot be looked up
	$(RELEASE)/bin/pip-audit --strict --disable-pip --require-hashes --requirement $(LOCK) --requirement $(BUILD_LOCK)

man: $(VENV)/.installed  ## rewrite the man page and the shell completions in deploy/share from the commands
	$(BIN)/python -m deploy.command_files

docs: $(VENV)/.installed  ## rewrite the tables of docs/configuration.md and docs/analysis-tables.md from what they are of
	$(BIN)/python -m config.reference
	$(BIN)/python -m analysis.gold.described

clean:  ## what the commands above made, but not the jar cache
	rm -rf $(VENV) $(COMPILED) $(RELEASE) $(PYTHONS:%=.venv-%) $(PYTHONS:%=.venv-%-compiled) build dist bench/bin .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
