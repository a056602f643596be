# For a newcomer: `make demo`, `make test` and `make test-all`. They build their own environment in .venv.

PYTHON ?= python3
# What the tests install: EXTRAS=test,oracle adds PyTorch, and the tests that compare with it; EXTRAS=test,kernels adds
# NVIDIA's compiler and CuPy: the tests that compile kernels.cu for GPUs, and the tests for a GPU on an emulated one.
EXTRAS ?= test
# The layout of lessons is made for their pages.
BLACK = black --line-length 120 --skip-magic-trailing-comma scratchformer lessons/support lessons/exercises tests tools \
	benchmarks

# All cores; a worker that has nothing left to do takes tests from another one.
PYTEST = $(BIN)python -m pytest --numprocesses auto --dist worksteal

# Where it is set, each of the hundreds of processes that the tests start would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all check format lessons site correctness bench clean

demo: .venv/installed
	.venv/bin/scratchformer demo --out runs/demo

# The short proof, in minutes: lint, types, plain English, and all tests that are not marked slow.
test: .venv/extras-$(EXTRAS)
	$(MAKE) check BIN=.venv/bin/

# Everything: the short proof, then the tests that are marked slow.
test-all: BIN = .venv/bin/
test-all: test
	$(PYTEST) -m slow

# What `make test` runs, in the environment that is active.
check:
	$(BIN)$(BLACK) --check --quiet
	$(BIN)flake8
	$(BIN)isort --check --diff --quiet .
	$(BIN)mypy
	$(BIN)python tools/plain_english.py
	$(PYTEST) -m "not slow"

# Let black and isort lay out the code.
format:
	$(BIN)$(BLACK) --quiet
	$(BIN)isort --quiet .

# Run the lessons and write their pages, docs/lessons/.
lessons: .venv/installed
	.venv/bin/python tools/lessons.py

# Build the site from docs/ and the docstrings: open site/index.html.
site: .venv/extras-site
	.venv/bin/sphinx-build -q -W --keep-going -d build/site docs site

# Measure what proves the code right, about ten minutes, and write docs/correctness.md and the table in README.md.
correctness: .venv/extras-test,oracle
	.venv/bin/python tools/correctness.py

# Measure the speed that docs/performance.md shows, about two hours; best on a machine that has nothing else to do.
bench: .venv/extras-oracle
	.venv/bin/python benchmarks/cpu_step.py
	.venv/bin/python benchmarks/cpu_decode.py
	.venv/bin/python benchmarks/cpu_tricks.py

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python setup.cfg pyproject.toml
	.venv/bin/python -m pip install --quiet --editable .
	touch $@

.venv/extras-%: .venv/installed
	.venv/bin/python -m pip install --quiet --editable '.[$*]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache site lessons/out lessons/lab/out
