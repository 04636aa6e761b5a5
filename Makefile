# Every target sets up what it needs: a virtual environment in .venv with weft installed into it.
# On Windows that takes GNU make and the shell of Git for Windows.
VENV := .venv
ifeq ($(OS),Windows_NT)
PYTHON ?= python
BIN := $(VENV)/Scripts
else
PYTHON ?= python3
BIN := $(VENV)/bin
endif
# What was installed: all tools, what the demo needs where they are not, and what tests need beside
# them. Another installer of packages serves too: make demo INSTALL='uv pip install --python .venv'
READY := $(VENV)/ready
DEMO := $(or $(wildcard $(READY)),$(VENV)/ready-for-demo)
TESTS := $(VENV)/ready-for-tests
INSTALL ?= $(BIN)/python -m pip install --quiet --disable-pip-version-check
# PYTEST_ARGS narrows the tests down: make test PYTEST_ARGS="tests/core -k grad"
PYTEST_ARGS ?=

# Options of Sphinx: make docs SPHINXOPTS="--define plot_gallery=0" leaves the gallery's programs out.
SPHINXOPTS ?=

# Of what `make test` leaves out, the part that `make test-part` runs.
PART ?= $(shell expr $$(git rev-list --count HEAD 2>/dev/null || echo 0) % 160)/160

# Without compiled modules, each of the processes that tests start would compile all of weft.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-part test-targets test-lowest test-gpu test-intel test-torch fast lint types bench docs support clean

demo: $(DEMO)
	$(BIN)/python examples/digits.py --out out

# tests/tiers.py says which tests are in which tier.
fast: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal --tier=fast $(PYTEST_ARGS)

test: $(TESTS)
	$(BIN)/python -m pytest -n auto --dist worksteal --tier=test $(PYTEST_ARGS)

# Everything there is; Zig is one of the compilers of the native backend.
test-all: $(TESTS)
	$(INSTALL) --editable '.[dev,docs,native-zig]'
	$(BIN)/python -m pytest -n auto --dist worksteal --tier=all $(PYTEST_ARGS)

# A part of what only test-all runs: another one after each commit.
test-part: $(TESTS)
	$(BIN)/python -m pytest -n auto --dist worksteal --above=test --part=$(PART) $(PYTEST_ARGS)

# Programs and the runtime of the native backend, compiled by Zig for Linux, Windows and macOS, and
# run where QEMU or Wine can.
test-targets: $(READY)
	$(INSTALL) --editable '.[dev,native-zig]'
	$(BIN)/python -m pytest -n auto --dist worksteal $(PYTEST_ARGS) tests/backends/native/test_native_targets.py

# The fast tier with the lowest versions that pyproject.toml allows, in an environment of its own.
test-lowest: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python out/lowest
	$(BIN)/uv pip install --quiet --python out/lowest --resolution lowest-direct --only-binary :all: --no-binary weftc --editable '.[dev]'
	$(subst $(VENV),out/lowest,$(BIN))/python -m pytest -n auto --dist worksteal --tier=fast $(PYTEST_ARGS)

# Where there is an NVIDIA GPU: the kit on it, frontends and examples, and the tests that need one, or
# two for NCCL.
test-gpu: $(READY)
	$(INSTALL) --editable '.[dev,nccl]'
	$(BIN)/python -m pytest --weft-backend=cupy $(PYTEST_ARGS) core/weft/testing tests/frontends tests/examples
	$(BIN)/python -m pytest $(PYTEST_ARGS) tests/backends/cuda/test_gpu.py tests/backends/cuda/test_nccl.py
	$(BIN)/python -m pytest -n auto --tier=all -k cupy $(PYTEST_ARGS) tests/codegen/test_unknown_lengths.py

# The kit, the tests of kernels in C and those of the OpenCL backend on Intel's runtime for
# processors, which stays installed; and the kit on the driver that was there before.
test-intel: $(READY)
	$(INSTALL) intel-opencl-rt intel-cmplr-lib-rt
	WEFT_OPENCL_DEVICE=intel:0 $(BIN)/python -m pytest -n auto --dist worksteal --weft-backend=opencl $(PYTEST_ARGS) core/weft/testing tests/codegen tests/backends/opencl tests/conformance/test_second_driver.py

# The frontend of PyTorch, which this installs: 200 megabytes where pip finds its build for processors,
# named 2.13.0+cpu, which PyTorch's own index has; gigabytes with CUDA.
test-torch: $(READY)
	$(INSTALL) --editable '.[dev,torch-tests]'
	$(BIN)/python -m pytest -n auto --dist worksteal --tier=all $(PYTEST_ARGS) tests/frontends/torch

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/checks.yml

types: $(READY)
	$(BIN)/mypy

# The site, in out/site, and before it what is written from the code: all ops, and pictures.
docs: $(READY)
	$(INSTALL) --editable '.[dev,docs]'
	$(BIN)/python docs/tools/catalog.py
	$(BIN)/python docs/tools/environment.py
	$(BIN)/python docs/tools/layers.py
	$(BIN)/python docs/tools/pictures.py
	$(BIN)/python docs/tools/inventories.py
	rm -rf out/site
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --doctree-dir out/doctrees $(SPHINXOPTS) docs out/site

# Which backend computes which function, found by the conformance kit in some ten minutes.
support: $(READY)
	$(BIN)/python docs/tools/support.py

# weft over NumPy on each backend, and beside other tools, which the extra `bench` installs: the last
# command writes the table of the README.
bench: $(READY)
	$(INSTALL) --editable '.[dev,bench]'
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/peers.py --backend native --summary

$(READY): pyproject.toml | $(VENV)/pyvenv.cfg
	$(INSTALL) --editable '.[dev]'
	touch $@

# Python compiles a module when it is first imported: most of these never are.
$(VENV)/ready-for-demo: pyproject.toml | $(VENV)/pyvenv.cfg
	$(INSTALL) --no-compile --editable '.[demo]'
	touch $@

# A C compiler and an OpenCL driver, where the system has none and a wheel brings one.
$(TESTS): tests/needs.py $(READY)
	wheels=$$($(BIN)/python tests/needs.py) && { [ -z "$$wheels" ] || $(INSTALL) $$wheels; }
	touch $@

$(VENV)/pyvenv.cfg:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "weft needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV) || $(PYTHON) -m virtualenv $(VENV) || { echo "Python cannot make virtual environments here: install python3-venv (Debian, Ubuntu), or run: $(PYTHON) -m pip install virtualenv"; exit 1; }

# An environment that could not be finished is made again.
.DELETE_ON_ERROR:

clean:
	rm -rf $(VENV) docs/generated out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
