# Every target sets up what it needs. uv is used where it is installed, plain venv and pip elsewhere.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
ifdef UV
  MAKE_VENV := uv venv --quiet --seed --python "$(PYTHON)" $(VENV)
  INSTALL := uv pip install --quiet --python $(BIN)/python
else
  MAKE_VENV := $(PYTHON) -m venv $(VENV)
  INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest
# The longest takes some 40 s on two cores: one that hangs is named, and does not hold up the others.
STUCK := --timeout=600 --timeout-method=thread

.PHONY: run test test-all test-oracles bench experiments lint format clean

run: $(VENV)/.report  ## train one network four times and write runs/digits/report.html
	$(BIN)/fp16sim train --out runs/digits

test: $(VENV)/.test  ## samples of everything, under 10 minutes on two cores
	$(PYTEST) $(STUCK) -n $(WORKERS) -m "not slow and not oracle"

test-all: $(VENV)/.oracles  ## the same and the exhaustive runs, those against other programs too; prints what each covered
	$(PYTEST) $(STUCK) -n $(WORKERS) -m "not slow and not oracle"
	$(PYTEST) -m slow -s

test-oracles: $(VENV)/.oracles  ## against torch and gfloat; skips, with the reason, where they are absent
	$(PYTEST) $(STUCK) -n $(WORKERS) -m "oracle and not slow"

bench: $(VENV)/.bench $(VENV)/.torch  ## ratios to numpy, a copy of the same bytes, sgemm and torch, each in one run
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(BIN)/python experiments/bench/elementwise.py
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(BIN)/python experiments/bench/matmul.py
	$(BIN)/python experiments/bench/training.py
	$(BIN)/python experiments/bench/scalers.py
	$(BIN)/python experiments/bench/tables.py

experiments: $(VENV)/.report  ## published, here, band
	@set -e; for script in experiments/[0-9]*.py; do echo "== $$script"; $(BIN)/python $$script; done

lint: $(VENV)/.dev $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist

$(BIN)/python:
	$(MAKE_VENV)

$(VENV)/.report $(VENV)/.test $(VENV)/.dev $(VENV)/.bench: $(VENV)/.%: pyproject.toml | $(BIN)/python
	$(INSTALL) -e ".[$*]"
	@touch $@

# pip, pinned, and before anything that needs it: see the comment in pyproject.toml.
$(VENV)/.torch: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 && touch $@ \
	  || echo "torch 2.13.0 could not be installed here: the tests against it will skip"

$(VENV)/.oracles: $(VENV)/.torch $(VENV)/.test
	$(INSTALL) -e ".[test,oracles]"
	$(INSTALL) --no-deps mmasim==2.1.1  # which asks for more of torch than it uses
	@touch $@
