PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
EXTRAS := hf,data,metrics,plots,track,dev

# An empty file per state of the environment: newer than what it was installed from means there is nothing to do.
CORE := .venv/installed-core
DEVELOPER := .venv/installed-developer
SOURCES := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo setup test test-gpu check prove format clean

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1#/p' Makefile | awk -F '#' '{ printf "%-14s %s\n", $$1, $$2 }'

demo: $(CORE) ## install the package and run its main job
	@$(BIN)/lightbert demo

setup: $(DEVELOPER) ## build .venv with all that developers need

test: setup check ## everything a change has to pass: lint, types and tests
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not prove"

test-gpu: $(DEVELOPER) ## the tests that need a GPU
	$(BIN)/pytest -m "gpu and not prove"

check: $(DEVELOPER) ## lint, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

prove: $(DEVELOPER) ## the long proofs that `make test` leaves out
	$(BIN)/pytest -m prove

format: $(DEVELOPER) ## fix what lint and formatting can fix by themselves
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## remove caches and builds; .venv and runs stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
		"lightbert needs Python 3.11 or newer and $(PYTHON) is %d.%d; name another one: make setup PYTHON=python3.12" \
		% sys.version_info[:2])'
	@# A half-made environment would look finished to the next run.
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

$(CORE): $(SOURCES) | $(BIN)/python
	@echo "installing lightbert into .venv; the first time takes minutes"
	@$(PIP) -e '.[plots]'
	@touch $@

$(DEVELOPER): $(SOURCES) | $(BIN)/python
	@echo "installing lightbert and its developers' tools into .venv; the first time takes minutes"
	@$(PIP) -e '.[$(EXTRAS)]'
	@touch $(CORE) $@
