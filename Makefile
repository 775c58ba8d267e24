# Two commands a newcomer needs: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export MPLBACKEND := Agg

.PHONY: demo docs test test-all bench format clean

demo: $(READY)
	$(BIN)/python examples/sparse/sparse_regression.py
	$(BIN)/soubayes reproduce table1 --quick --jobs 2 --out results
	$(BIN)/soubayes report results

# the site, in docs/_build/html; every warning is an error
docs: export OMP_NUM_THREADS := 1
docs: $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[docs]"
	$(BIN)/sphinx-build -n -W --keep-going -q docs docs/_build/html

# two workers on two cores
test test-all: export OMP_NUM_THREADS := 1

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

test-all: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "slow or not slow"

bench: $(READY)
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[bench]"
	-$(BIN)/python -m pip install -q sparsevb  # compiles; where it does not, the page says so
	$(BIN)/python benchmarks/scaling.py --rows 1000000
	$(BIN)/python benchmarks/wide.py --columns 20000
	$(BIN)/python benchmarks/suite.py  # writes docs/development/benchmarks.md

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) docs/_build docs/auto_examples docs/api/generated docs/api/backreferences docs/paper/generated build dist results .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install -q --disable-pip-version-check -e ".[dev]"
	touch $@
