# make demo             sets up .venv and trains a small network on handwritten digits
# make test             sets up .venv and passes lint, types, the import contract and all tests (under 8 minutes on 2 cores)
# make install          sets up .venv with the project and everything that its tests need
# make lint             ruff, mypy and the import contract alone
# make docs             builds the documentation into site/; open site/index.html
# make test-long        the long checks: 1,000 random layers per property, and tests marked `long`
# make test-sanitizers  the native kernel's tests under the address and undefined-behaviour sanitizers
# make test-processes   the tests that start processes, again and again: none may ever fail by chance
# make test-hunt        10,000 damaged files of every format: none may crash, hang or be believed
# make test-fuzz        the parsers that are ours, fuzzed by coverage (atheris), a minute each
# make test-kill        kills commands at random moments until 1,000 kills are counted; goes on where it was stopped
# make test-lowest      all tests with the lowest versions that pyproject.toml allows (constraints/lowest.txt)
# make test-newest      all tests with the newest versions (constraints/newest.txt)
# make test-arm         the native kernel for 64-bit ARM: cross-compiled, and tested under qemu
# make wheel            builds the wheel and tests it in an environment of its own
# make sdist            builds the sdist and runs tests in it, unpacked

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard src/epitomic/native/*.h src/epitomic/native/*.cpp)

.PHONY: install lint test test-long test-lowest test-newest test-sanitizers test-processes test-hunt test-fuzz test-kill test-arm docs wheel sdist demo clean

# Two sets of packages: `demo` installs what training and its report need, `install` also the development tools.
# constraints.txt pins the versions that we test with; pyproject.toml states the range that we support.
install: $(VENV)/.installed
demo-install: $(VENV)/.demo-installed

$(VENV)/.torch: constraints.txt
	@test -x $(BIN)/python || { echo "creating $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@tools/warn_of_cuda.sh $(PIP) torch
	@echo "installing torch (about 200 MB; a minute or two) ..."
	@$(PIP) torch
	@touch $@

$(VENV)/.demo-installed: $(VENV)/.torch $(SOURCES)
	@echo "installing epitomic with what training and its report need, and building the native kernel ..."
	@$(PIP) --editable '.[train,plots]'
	@touch $@

$(VENV)/.installed: $(VENV)/.torch $(SOURCES)
	@echo "installing epitomic with everything that its tests need, and building the native kernel ..."
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.demo-installed

lint: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pylint src/epitomic

# Two tests run at a time. Idle OpenMP threads sleep, because spinning ones would take the other test's core.
test: lint
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

test-long: install
	EPITOMIC_EXAMPLES=1000 $(BIN)/python -m pytest -m "long or not long"

# Each has an environment of its own below build/, with everything that the tests need.
test-lowest test-newest: test-%:
	test -x build/$*/bin/python || $(PYTHON) -m venv build/$*
	@tools/warn_of_cuda.sh build/$*/bin/python -m pip install --quiet --constraint constraints/$*.txt torch
	build/$*/bin/python -m pip install --quiet --constraint constraints/$*.txt --editable '.[dev]'
	build/$*/bin/python -m pytest

# Assertions are on. The sanitizers' run time is preloaded, because Python itself was built without it.
SANITIZED := build/sanitize/epitomic/native/epitomic_kernel.so
test-sanitizers: install
	EPITOMIC_BUILD=sanitize $(BIN)/python setup.py --quiet build_ext --build-lib build/sanitize
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 EPITOMIC_NATIVE=$(abspath $(SANITIZED)) \
		$(BIN)/python -m pytest -p no:cacheprovider tests/ops/test_native.py tests/ops/test_library.py tests/ops/test_threads.py

# Needs Debian's g++-aarch64-linux-gnu and qemu-user. The last line shows that the kernel has NEON's multiply-adds.
ARM ?= aarch64-linux-gnu
ARM_LIBRARY := build/arm/epitomic/native/epitomic_kernel.so
test-arm: install
	@command -v $(ARM)-g++ qemu-aarch64 >/dev/null || \
		{ echo "make test-arm needs $(ARM)-g++ and qemu-aarch64 (Debian: g++-aarch64-linux-gnu, qemu-user)"; exit 2; }
	CXX=$(ARM)-g++ EPITOMIC_BUILD=debug $(BIN)/python setup.py --quiet build_ext --build-lib build/arm --build-temp build/arm/temp
	$(BIN)/python tests/native/write_maps.py build/arm/maps.h
	$(ARM)-g++ -std=c++17 -O1 -pthread -Ibuild/arm tests/native/self_test.cpp $(ARM_LIBRARY) -Wl,-rpath,$(abspath $(dir $(ARM_LIBRARY))) -o build/arm/self_test
	qemu-aarch64 -L /usr/$(ARM) build/arm/self_test
	! qemu-aarch64 -L /usr/$(ARM) build/arm/self_test --wrong >/dev/null
	$(ARM)-objdump -d $(ARM_LIBRARY) | grep -q 'fmla.*v[0-9]*\.4s'

test-processes: install
	BIN=$(BIN) tools/repeat_processes.sh

# Both write their counts to results/hardening.md.
HUNT ?= 10000
test-hunt: install
	$(BIN)/python -m tests.hardening.hunt --cases $(HUNT) --out results/hardening.md

FUZZ := metrics results facts config transfer statistics sealed index table tensors idx cifar names csv
FUZZ_SECONDS ?= 60
test-fuzz: install
	@$(PIP) --editable '.[fuzz]'
	set -e; for name in $(FUZZ); do $(BIN)/python -m tests.hardening.fuzz $$name -max_total_time=$(FUZZ_SECONDS) \
		-rss_limit_mb=3000 -timeout=10 -max_len=20000 -artifact_prefix=build/fuzz-$$name-; done

KILLS ?= 1000
test-kill: install
	$(BIN)/python -m tests.hardening.kills --kills $(KILLS) --out results/hardening.md

docs: install
	$(BIN)/mkdocs build --strict
	@echo "open site/index.html"

# `pip wheel` names the wheel linux_*, which package indexes refuse. auditwheel checks which old systems the kernel runs
# on, and names the wheel after them (manylinux). EPITOMIC_BUILD=0 gives a wheel without the kernel, for any platform.
# The tests run outside the source tree, so that they import the wheel.
WHEEL_TESTS := $(if $(filter 0,$(EPITOMIC_BUILD)),tests/test_functional.py,tests/ops/test_native.py tests/ops/test_library.py tests/ops/test_threads.py)
wheel: install
	rm -rf build/wheel dist && mkdir -p build/wheel dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	@case $$(ls build/wheel/*.whl) in \
		*linux_*) export PATH="$(abspath $(BIN)):$$PATH"; \
			auditwheel repair --wheel-dir dist build/wheel/*.whl && auditwheel show dist/*.whl;; \
		*) cp build/wheel/*.whl dist;; esac
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install --quiet --constraint constraints.txt torch
	build/wheel/venv/bin/python -m pip install --quiet --constraint constraints.txt dist/epitomic-*.whl pytest hypothesis numpy
	cp -r tests build/wheel && cd build/wheel && venv/bin/epitomic info && venv/bin/python -m pytest -q $(WHEEL_TESTS)
	@ls dist

# What the sdist holds is built and tested where it is unpacked. SDIST_TESTS= (nothing) runs the whole suite.
SDIST_TESTS ?= tests/ops tests/test_layers.py tests/test_build.py tests/test_repository.py tests/test_docs.py
sdist: install
	rm -rf build/sdist && mkdir -p build/sdist
	$(BIN)/python -m build --quiet --sdist --outdir dist .
	tar -xzf dist/epitomic-*.tar.gz -C build/sdist --strip-components 1
	cd build/sdist && EPITOMIC_BUILD=1 $(abspath $(BIN))/python setup.py --quiet build_ext --inplace
	cd build/sdist && PYTHONPATH=src $(abspath $(BIN))/python -m pytest $(SDIST_TESTS)

demo: demo-install
	$(BIN)/epitomic train digits --model epitomic_small --out runs/digits-$$(date +%Y%m%d-%H%M%S)

clean:
	rm -rf $(VENV) build dist site
