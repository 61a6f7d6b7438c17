# `make demo` and `make test` each work as the first command in a fresh clone: they make .venv and install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench docs notebooks surroundings clean

demo: $(VENV)/.base
	$(BIN)/verifair pba --demo german --protected age --delta 1 --delta 2 --delta 3 --out demo $(if $(wildcard demo/verdicts.sqlite),--resume)
	$(BIN)/verifair check demo/certificate.json.gz --demo german
	@echo "See demo/: table.txt, outcomes.png, verdicts.sqlite, verdicts.parquet, certificate.json.gz"

# LightGBM and XGBoost take as many threads as there are cores, whatever OMP_NUM_THREADS says, and the workers take the cores.
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 OMP_THREAD_LIMIT=1 $(BIN)/python -m pytest -n auto --dist worksteal

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The oldest versions that are declared, and a wheel on every Python at hand.
surroundings:
	$(PYTHON) -m tests.surroundings

bench: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.run

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html -D papers_data="$(VERIFAIR_DATA)" docs docs/_build/html
	@echo "See docs/_build/html/README.html"

notebooks: $(VENV)/.docs
	$(BIN)/python docs/notebooks.py
	@echo "See docs/_build/notebooks: a Jupyter notebook for each tutorial"

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e ".[plots,parquet]"
	@touch $@

# torch is named with its version: a bare torch pulls gigabytes of GPU packages.
$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	@touch $@ $(VENV)/.base

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e ".[docs]"
	@touch $@

clean:
	rm -rf $(VENV) demo build dist docs/_build *.egg-info
