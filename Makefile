PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
EXTRAS := hf,data,metrics,retrieval,plots,track,export,serve,kernels,dev

# Stamp files: the environment is up to date if they are newer than SOURCES.
CORE := .venv/installed-core
DEVELOPER := .venv/installed-developer
SOURCES := pyproject.toml constraints.txt Makefile

.DEFAULT_GOAL := help
.PHONY: help demo setup test test-gpu check prove prove-gpu docs format clean

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1#/p' Makefile | awk -F '#' '{ printf "%-14s %s\n", $$1, $$2 }'

demo: $(CORE) ## install lightbert, train a small encoder, fine-tune the bundled one: minutes
	@$(BIN)/lightbert demo --finetune

setup: $(DEVELOPER) ## create .venv with all development tools

test: setup check ## lint, type checks and tests; must pass for every change
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

test-gpu: $(DEVELOPER) ## tests that require a GPU
	$(BIN)/pytest -m "gpu and not prove"

check: $(DEVELOPER) ## lint, formatting and type checks
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

prove: $(DEVELOPER) ## slow tests, which `make test` skips
	$(BIN)/pytest -m prove

prove-gpu: $(DEVELOPER) ## slow tests that require a GPU: five minutes on an H200
	$(BIN)/pytest -m "gpu and prove" --durations 10 tests/train

docs: $(DEVELOPER) ## the documentation as a site, in build/site; broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(DEVELOPER) ## apply automatic fixes of lint and formatting
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## remove caches and builds; keeps .venv and runs
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
		"lightbert needs Python 3.11 or newer and $(PYTHON) is %d.%d; choose another one: make setup PYTHON=python3.12" \
		% sys.version_info[:2])'
	@# An incomplete environment would be taken for a complete one by the next run.
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

$(CORE): $(SOURCES) | $(BIN)/python
	@echo "installing lightbert into .venv; the first time takes minutes"
	@$(PIP) -e '.[plots,serve,metrics]'
	@touch $@

$(DEVELOPER): $(SOURCES) | $(BIN)/python
	@echo "installing lightbert and development tools into .venv; the first time takes minutes"
	@$(PIP) -e '.[$(EXTRAS)]'
	@touch $(CORE) $@
