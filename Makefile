# Everything is set up by the project's own files: Python >= 3.11 with venv, and make, are all that is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2

TUTORIALS := $(patsubst docs/tutorials/%.py,build/tutorials/%.md,$(wildcard docs/tutorials/*.py))

.PHONY: help setup demo docs test test-slow planted test-interop bench-streams bench-peers lint types clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## the virtual environment .venv with everything in it

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing evergrad and what it needs into $(VENV) (a minute or two, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

demo: $(STAMP) ## a question about a cue beyond all remembered steps: OK and TBPTT, in about two minutes; results in runs/demo
	@$(BIN)/evergrad demo --out runs/demo

docs: $(STAMP) $(TUTORIALS) ## the documentation in site/, its tutorials executed; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python scripts/check_site.py site

build/tutorials/%.md: docs/tutorials/%.py scripts/notebooks.py $(shell find evergrad -name '*.py') | $(STAMP)
	@echo "executing $<"
	@$(BIN)/python scripts/notebooks.py $< --out $(@D)

test: $(STAMP) lint ## style, types, and all tests but the slow ones
	@$(MAKE) --no-print-directory -j 2 types pytest

.PHONY: pytest
pytest: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations=15

.PHONY: dist
dist: ## wheel and sdist in dist/, installed into empty environments and tried there: core only, then each extra; PARTS="core cli"
	scripts/dist.sh $(PARTS)

test-interop: ## PyTorch loads what is exported; in an environment of its own
	scripts/test-interop.sh

bench-streams: $(STAMP) ## stream learners compared, deep-river in an environment of its own; DATA=folder, OUT=folder
	scripts/bench-streams.sh $(if $(DATA),--data $(DATA)) --out $(or $(OUT),runs/streams)

bench-peers: $(STAMP) ## speed against PyTorch and braintrace in environments of their own, and the authors' figures; JSON=file
	scripts/bench-peers.sh $(if $(JSON),--json $(JSON))

test-slow: $(STAMP) ## the slow tests, compiled as users' programs are
	XLA_FLAGS= $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m slow --durations=15

planted: $(STAMP) ## plants every error of tests/planted/errors.py in a copy of the package: its test must fail; ONLY="rls dni"
	$(BIN)/python -m tests.planted $(ONLY) --jobs $(JOBS)

lint: $(STAMP) ## style
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(STAMP) ## types, as pyright sees them
	$(BIN)/pyright

clean: ## removes the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache
