# Everything a newcomer needs: `make demo`, then `make test`.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

# Tests wait for servers half of the time: more workers than cores, where memory is there for them
# (each takes up to 2 GB, and an engine as much).
WORKERS ?= $(shell awk '/^MemAvailable/ { print ($$2 > 14000000 ? 4 : 2) }' /proc/meminfo 2>/dev/null || echo 2)

.PHONY: help demo docs reference test test-all test-fast faults mutants lint format bench bench-all venv system clean

help:  ## say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/'

demo: venv  ## plan and build a real small model; with a Docker Engine, run it too
	@PATH="$(abspath $(BIN)):$$PATH" scripts/demo

test: venv-test  ## run what every change must pass, live tests of what README promises included
	@$(BIN)/python scripts/prepare-tests
	$(BIN)/pytest -m "not extended" -n $(WORKERS) --dist loadgroup $(TESTS)

AREA ?=

test-all: venv-test  ## run every test; AREA="quantize cache" those of some areas; it goes on where it stopped
	@WORKERS=$(WORKERS) $(BIN)/python scripts/test-all $(AREA)

test-fast: venv-test  ## run the unit tests: no process, no socket, no sleep; a minute
	$(BIN)/pytest -q -n 2 $(or $(TESTS),tests/unit)

faults: venv-test  ## kill, cut and starve builds for long; the last line counts what must never be
	@$(BIN)/python scripts/prepare-tests --all
	@PACKAGER_FAULTS=long $(BIN)/pytest -q --timeout 3600 tests/faults

mutants: venv-test  ## apply the kept list of bugs one by one; the tests of their area must catch each
	@$(BIN)/python scripts/prepare-tests --all
	$(BIN)/python scripts/mutants $(MUTANTS)

lint: venv-test  ## style, types and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: venv-test  ## put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: venv  ## measure against the named peers; prints ratios
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python benchmarks/push.py

BENCHMARKS ?=
DATA ?=

bench-all: venv-test  ## run all benchmarks, for hours, and print one table; BENCHMARKS="tune serve" some
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python benchmarks/all.py $(BENCHMARKS) \
	  $(if $(DATA),--data "$(DATA)") --json bench-all.json

docs: venv-test  ## build the site of docs/ into site/; a warning is an error
	$(BIN)/python scripts/make-site

reference: venv  ## write docs/reference and docs/man, made from the code, not kept in git
	$(BIN)/python scripts/make-reference

system: venv-test  ## install what the live tests start (Debian, root): engine, registry, verifiers
	$(BIN)/python scripts/prepare-tests --all

venv: $(VENV)/.installed
venv-test: $(VENV)/.installed-test

# `.installing` is there while pip works: one that was killed leaves packages that it takes for whole.
make_venv = $(PYTHON) -m venv $$(test ! -e $(VENV)/.installing || echo --clear) $(VENV)

$(VENV)/.installed: pyproject.toml
	@$(make_venv)
	@touch $(VENV)/.installing
	$(BIN)/python -m pip install --quiet --editable '.[all]'
	@rm $(VENV)/.installing && touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/.installed
	@test ! -e $(VENV)/.installing || $(make_venv)
	@touch $(VENV)/.installing
	$(BIN)/python -m pip install --quiet --editable '.[all,test,lint,docs]'
	@rm $(VENV)/.installing && touch $(VENV)/.installed $@

clean:  ## remove what make made here
	rm -rf $(VENV) out dist site
