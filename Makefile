# The commands of this project. Bare `make` lists them; each sets up what it needs.
#
# The environment is .venv: made by uv if there is one, else by python3 -m venv and pip, from
# requirements.lock in both cases. .venv/.ready says that it agrees with the lock and
# pyproject.toml, so that a second run starts at once.
#
#   PYTHON=...  the interpreter to use (3.11, 3.12 or 3.13)     UV=  do without uv

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UV ?= $(shell command -v uv 2>/dev/null)
PART ?=
SEED ?= 0
FIG ?=
ONLY ?=
export UV

# Compiled kernels outlive a checkout: an entry of this folder is named by the content that it
# was compiled from (src/anabranch/batch/kernel.py).
CACHES := $(or $(XDG_CACHE_HOME),$(HOME:%=%/.cache),/tmp)/anabranch
NUMBA_CACHE_DIR ?= $(CACHES)/kernels
export NUMBA_CACHE_DIR

# The suffix of the line is the help text.
.PHONY: help
help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: $(READY)  ## make .venv with the locked versions; nothing to do if it is there
	@$(BIN)/python -c 'import sys; print(f"ready: {sys.executable}, Python {sys.version.split()[0]}")'

$(READY): requirements.lock pyproject.toml
	@UV="$(UV)" PYTHON="$(PYTHON)" VENV="$(VENV)" bash .ci/setup
	@touch $@

.PHONY: fix
fix: $(READY)  ## format, and mend what the linter can mend
	@$(BIN)/ruff format -q .
	@$(BIN)/ruff check --fix .

.PHONY: check
check: $(READY)  ## lint, types, import contracts, layout; no other tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/pytest -q tests/test_layout.py

.PHONY: test-fast
test-fast: $(READY)  ## unit tests, laws and doctests; no Spark, no packaging
	@$(BIN)/pytest -q -m "not spark and not deep" --ignore=tests/packaging

.PHONY: test
test: check  ## all that CI checks: check, every test (Spark and packaging too)
	@mkdir -p $(NUMBA_CACHE_DIR)
	@find $(NUMBA_CACHE_DIR) -mindepth 1 -maxdepth 1 -mtime +14 -exec rm -rf {} +
	@ANABRANCH_PROFILE=ci $(BIN)/python .ci/tests.py

.PHONY: test-deep
test-deep: $(READY)  ## heavy runs and laws tried hard, resumable: PART=path or 'path -k words'; SEED=n
	@ANABRANCH_PROFILE=deep PYTHONPATH=tests $(BIN)/pytest -p resume \
	  -m "deep or (hypothesis and not spark)" --hypothesis-seed=$(SEED) $(or $(PART),tests)

.PHONY: test-versions
test-versions: $(READY)  ## the tests on each supported PySpark and Python, resumable: ONLY=name PART=path
	@mkdir -p $(NUMBA_CACHE_DIR)
	@$(BIN)/python .ci/versions.py $(ONLY:%=--only %) $(PART)

.PHONY: coverage
coverage: $(READY)  ## branches of model, batch and operators that the tests reach (kernels uncompiled)
	@NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest -q -W ignore::RuntimeWarning \
	  tests/model tests/testing tests/batch tests/operators
	@$(BIN)/coverage report --skip-covered --include='*/model/*,*/batch/*,*/operators/*'

.PHONY: demo
demo: $(READY)  ## three fallible replicas, merged live on local Spark and checked
	@$(BIN)/anabranch demo

.PHONY: docs
docs: $(READY)  ## guides and API reference as a site in build/site; broken links are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "open build/site/index.html; with search: python -m http.server -d build/site"

.PHONY: pictures
pictures: $(READY)  ## draw the pictures of the README and the guides again
	@$(BIN)/python .ci/pictures.py
	@$(BIN)/python .ci/pictures_of_queries.py

.PHONY: walk
walk:  ## type what the README and the production guide show, in a fresh clone; prints the time
	@python3 .ci/walk.py

.PHONY: bench
bench: $(READY)  ## one figure: FIG=name; without it, the names
	@if [ -n "$(FIG)" ]; then $(BIN)/python benchmarks/$(FIG).py; \
	else echo "make bench FIG=name, where name is one of:"; \
	  find benchmarks -maxdepth 1 -name '*.py' -exec basename {} .py \; | sort | sed 's/^/  /'; fi

.PHONY: lock
lock:  ## renew requirements.lock from pyproject.toml (needs uv)
	@if [ -z "$(UV)" ]; then echo "make lock needs uv: pip install uv, then UV=path/to/uv" >&2; exit 2; fi
	@"$(UV)" pip compile -q --universal --python-version 3.11 --no-emit-index-url --no-header \
	  pyproject.toml --group dev -o requirements.lock $(LOCK)

.PHONY: build
build: $(READY)  ## sdist and wheel into dist/
	@$(BIN)/python -m build --no-isolation --outdir dist .

.PHONY: clean
clean:  ## remove .venv, caches and build results of this checkout
	@rm -rf $(VENV) .venv-pyspark* dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
