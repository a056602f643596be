# Two commands for a newcomer, `make demo` and `make test`; both build their own environment in .venv.

PYTHON ?= python3

.PHONY: demo test check clean

demo: .venv/installed
	.venv/bin/scratchformer demo --out runs/demo

test: .venv/tested
	$(MAKE) check BIN=.venv/bin/

# Lint, types and all tests, in the environment that is active (or in BIN).
check:
	$(BIN)flake8
	$(BIN)isort --check --diff --quiet .
	$(BIN)mypy
	$(BIN)python -m pytest

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python setup.cfg pyproject.toml
	.venv/bin/python -m pip install --quiet --editable .
	touch $@

.venv/tested: .venv/installed
	.venv/bin/python -m pip install --quiet --editable '.[test]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache
