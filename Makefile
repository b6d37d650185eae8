# make install   .venv with the project and all that its tests need
# make test      set up, then lint, types and tests (under 10 minutes on 2 cores)
# make test-long the long checks: 1,000 random geometries per property and the like
# make demo      set up, then the main job

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install test test-long lint demo clean

install: $(VENV)/.installed

# constraints.txt pins what we test with; pyproject.toml states what we support.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

lint: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: install lint
	$(BIN)/python -m pytest -m "not long"

test-long: install
	EPITOMIC_EXAMPLES=1000 $(BIN)/python -m pytest

demo: install
	$(BIN)/epitomic train digits --model epitomic_small --out runs/digits-$$(date +%Y%m%d-%H%M%S)

clean:
	rm -rf $(VENV) build dist
