# make install   .venv with the project and all that its tests need
# make test      set up, then lint, types and tests (under 10 minutes on 2 cores)
# make test-long the long checks: 1,000 random geometries per property and the like
# make wheel    the wheel, built and then tested in an environment of its own
# make test-sanitizers  the native kernel's tests under the address and undefined-behaviour sanitizers
# make demo      set up, then the main job

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install test test-long test-sanitizers wheel lint demo clean

install: $(VENV)/.installed

# constraints.txt pins what we test with; pyproject.toml states what we support.
$(VENV)/.installed: pyproject.toml setup.py constraints.txt $(wildcard src/epitomic/native/*.h src/epitomic/native/*.cpp)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

lint: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: install lint
	$(BIN)/python -m pytest

test-long: install
	EPITOMIC_EXAMPLES=1000 $(BIN)/python -m pytest -m "long or not long"

# Assertions on, and the library preloaded with the sanitizers' run time, as Python itself was built without.
SANITIZED := build/sanitize/epitomic/native/epitomic_kernel.so
test-sanitizers: install
	EPITOMIC_BUILD=sanitize $(BIN)/python setup.py --quiet build_ext --build-lib build/sanitize
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 EPITOMIC_NATIVE=$(abspath $(SANITIZED)) \
		$(BIN)/python -m pytest -p no:cacheprovider tests/ops/test_native.py tests/ops/test_library.py

# Tested from outside the source tree, so that it is the wheel that is imported.
wheel: install
	rm -rf build/wheel dist && mkdir -p build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install --quiet --constraint constraints.txt torch
	build/wheel/venv/bin/python -m pip install --quiet --constraint constraints.txt dist/epitomic-*.whl pytest hypothesis numpy
	cp -r tests build/wheel && cd build/wheel && venv/bin/epitomic info && venv/bin/python -m pytest -q tests/ops/test_native.py tests/ops/test_library.py

demo: install
	$(BIN)/epitomic train digits --model epitomic_small --out runs/digits-$$(date +%Y%m%d-%H%M%S)

clean:
	rm -rf $(VENV) build dist
