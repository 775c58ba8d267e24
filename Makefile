# Commands a newcomer needs: `make demo`, `make test`, `make docs`. Each installs what it needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export MPLBACKEND := Agg

.PHONY: demo docs lint types test test-all test-kernels test-lowest coverage wheel sdist bench format clean

# an environment of its own with the core, the plots and the command line
demo: .venv-demo/.ready
	.venv-demo/bin/python tools/demo.py

.venv-demo/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-demo
	PIP_CONSTRAINT=constraints.txt .venv-demo/bin/python -m pip install -q --disable-pip-version-check -e ".[cli,plot]"
	touch $@

# the site, in docs/_build/html; every warning is an error
docs: export OMP_NUM_THREADS := 1
docs: $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[docs]"
	$(BIN)/sphinx-build -n -W --keep-going -q docs docs/_build/html

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# two workers on two cores
PYTEST = -m pytest -n 2 --dist worksteal -q
test test-all test-kernels test-lowest coverage sdist: export OMP_NUM_THREADS := 1

test: lint types
	$(BIN)/python $(PYTEST)

test-all: $(READY)
	$(BIN)/python $(PYTEST) -m "slow or not slow"

# results must not depend on the processor: numerics and pages under two kernels of OpenBLAS
NUMERICS = tests/exact tests/sparse tests/test_documents.py tests/test_pinned.py
test-kernels: $(READY)
	OPENBLAS_CORETYPE=Haswell $(BIN)/python $(PYTEST) $(NUMERICS)
	@if grep -qs avx512bw /proc/cpuinfo; then \
		OPENBLAS_CORETYPE=SkylakeX $(BIN)/python $(PYTEST) $(NUMERICS); \
	else \
		echo "The kernel SkylakeX is skipped: this processor lacks AVX-512."; \
	fi

# which lines the tests reach: a table here, coverage.xml for other programs
coverage: $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt pytest-cov
	$(BIN)/python $(PYTEST) --cov=soubayes --cov-report=term:skip-covered --cov-report=xml

# the same tests with the lowest versions of our libraries that pyproject.toml allows; warnings of
# old libraries about their own future are no errors
test-lowest: .venv-lowest/.ready
	.venv-lowest/bin/python $(PYTEST) -W default

.venv-lowest/.ready: pyproject.toml tools/lowest.py
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python tools/lowest.py > .venv-lowest/constraints.txt
	PIP_CONSTRAINT=.venv-lowest/constraints.txt .venv-lowest/bin/python -m pip install -q --disable-pip-version-check -e ".[dev]"
	touch $@

# tests/test_package.py installs the wheel where only the core exists; this is the file to upload
wheel: $(READY)
	$(BIN)/python -m hatchling build -t wheel -d dist

# the sdist, and its own tests where there is nothing else
sdist: $(READY)
	$(BIN)/python -m hatchling build -t sdist -d dist
	rm -rf build/sdist && mkdir -p build/sdist
	tar -xzf dist/soubayes-*.tar.gz -C build/sdist --strip-components 1
	cd build/sdist && PYTHONPATH=src ../../$(BIN)/python $(PYTEST)

bench: $(READY)
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[bench]"
	$(BIN)/python benchmarks/scaling.py --rows 1000000
	$(BIN)/python benchmarks/wide.py --columns 20000
	$(BIN)/python benchmarks/suite.py  # writes docs/development/benchmarks.md

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf coverage.xml .coverage $(VENV) .venv-demo .venv-lowest docs/_build docs/auto_examples docs/executed docs/api/generated docs/api/backreferences docs/paper/generated build dist results .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install -q --disable-pip-version-check -e ".[dev]"
	touch $@
