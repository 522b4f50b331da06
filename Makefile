# alltrace: `make` or `make help` lists what can be done. Each target makes the environment it needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DATA   ?= $(abspath ../shared/data)
SHELL  := /bin/bash

export ALLTRACE_DATA ?= $(wildcard $(DATA))
# tests start hundreds of commands: if Python keeps no compiled code, each of them compiles the whole package
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help env demo test test-all check lint typing unit slow slow-landing coverage coverage-core mutation sanitize fuzz docs site pictures bench release clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(VENV)/.done ## make the environment in .venv, with the tools of development, and build what is compiled
	@$(BIN)/python tools/packaging/build_backend.py
	@touch $(VENV)/.package

# venv makes pip last, so an environment without it is incomplete
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v >= (3, 11) or sys.exit("alltrace needs Python 3.11 or newer, $(PYTHON) is Python %d.%d; name a newer one, such as: make PYTHON=python3.12" % v)'
	$(PYTHON) -m venv $(VENV)

# the package alone; pip builds it again if what it compiles has changed; Python compiles the modules that are used when they are used
$(VENV)/.package: pyproject.toml setup.py $(wildcard src/alltrace/core/*.p[yx][xd]) | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable .
	@touch $@

$(VENV)/.done: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	@touch $(VENV)/.package $@

demo: $(VENV)/.package ## a simulated 16-rank run with one slow rank: import, the main tables, a report, and where to look next
	@$(BIN)/alltrace demo --output demo

test: check unit ## style, types, and all tests but the slow ones

test-all: test slow ## style, types and all tests

check: lint typing ## style and types

lint: env ## ruff, and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

typing: env ## mypy, strict
	$(BIN)/mypy

# a worker keeps to a block of tests, and so to the runs and pages that its files share, and takes over of another's at the end
WORKERS  ?= auto
PARALLEL := -n $(WORKERS) --dist worksteal
unit: env ## the tests but the slow ones; those that need a real Nsight Systems or real reports are skipped where there is none
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

slow: env ## the slow tests: of launchers, the page, processes that are killed, fuzzing, and comparisons with whole reports
	$(BIN)/python -m pytest $(PARALLEL) -m slow

slow-landing: env ## the slow tests that CI runs at each landing: all but the nightly ones
	$(BIN)/python -m pytest $(PARALLEL) -m "slow and not nightly"

coverage: env ## all tests, measuring which lines and branches they run; fails below 90 % of lines
	@code=0; $(BIN)/python -m pytest $(PARALLEL) --cov --cov-report= || code=$$?; $(BIN)/python tools/coverage_floor.py || code=1; exit $$code

coverage-core: env ## which lines of the compiled modules their tests run, on a build of their own; `make coverage` adds them
	$(BIN)/python tools/core_coverage.py

LIMIT ?= 30
SINCE ?=
mutation: env ## change LIMIT= places of the source, drawn by SEED=, of lines changed SINCE= a commit; see docs/quality.md
	$(BIN)/python -m tests.mutation --limit $(LIMIT) --seed $(SEED) --since "$(SINCE)"

sanitize: env ## build the package with address and undefined-behaviour sanitizers into build/sanitized
	@$(BIN)/python -m tests.fuzz build

INPUTS  ?= 100000
SEED    ?= 1
TARGETS ?=
fuzz: env ## fuzz the compiled loops under sanitizers; INPUTS= of each target, SEED=, TARGETS= such as sqlite,kineto
	@$(BIN)/python -m tests.fuzz run --inputs $(INPUTS) --seed $(SEED) --targets "$(TARGETS)"

site: env ## build the site from docs/ into build/site; fails on a link that leads nowhere
	$(BIN)/python tools/make_site.py

docs: env ## write the reference pages of docs/, its drawing of packages, and the outputs in README.md and docs/start.md
	$(BIN)/python tools/make_docs.py
	$(BIN)/python tools/make_import_map.py
	$(BIN)/python tools/make_readme.py

pictures: env ## pictures of the page on runs that are hard to show, in build/pictures; needs Chromium
	$(BIN)/python -m benchmarks.page_cases build/pictures

bench: env ## the benchmarks of docs/benchmarks.md, side by side with the peers
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m benchmarks

release: env ## build, look at and try the archives of a release into dist/, with checksums and its part of the changelog
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'ziglang>=0.13'
	$(BIN)/python -m tools.release $(RELEASE_OPTIONS)

clean: ## remove the environment, what was built, caches and the demo
	rm -rf $(VENV) build dist .cache .mypy_cache .ruff_cache .pytest_cache demo
