# Two commands for a newcomer, `make demo` and `make test`; both build their own environment in .venv.

PYTHON ?= python3
# What `make test` installs: EXTRAS=test,oracle adds PyTorch, and with it the tests that compare with it; kernels adds
# NVIDIA's compiler, and with it the test that compiles kernels.cu for GPUs.
EXTRAS ?= test
# The layout of lessons is made for their pages, and wrong answers are as a learner types them.
BLACK = black --line-length 120 --skip-magic-trailing-comma scratchformer lessons/library tests tools benchmarks \
	--extend-exclude tests/lessons/exercises/wrong

.PHONY: demo test check format lessons lessons-check ledger bench clean

demo: .venv/installed
	.venv/bin/scratchformer demo --out runs/demo

test: .venv/extras-$(EXTRAS)
	$(MAKE) check BIN=.venv/bin/

# Lint, types and all tests, on all cores, in the environment that is active (or in BIN).
check:
	$(BIN)$(BLACK) --check --quiet
	$(BIN)flake8
	$(BIN)isort --check --diff --quiet .
	$(BIN)mypy
	$(BIN)python -m pytest --numprocesses auto --dist loadfile

# Let black and isort lay out the code.
format:
	$(BIN)$(BLACK) --quiet
	$(BIN)isort --quiet .

# Run the lessons and write their pages: docs/lessons/, which is committed, and site/.
lessons: .venv/extras-lessons
	.venv/bin/python tools/lessons.py

# Run them and compare with docs/lessons/.
lessons-check: .venv/extras-lessons
	.venv/bin/python tools/lessons.py --check

# Measure what docs/correctness.md shows, most of an hour, and write it; in an environment with the extras test and oracle.
ledger:
	$(BIN)python tools/ledger.py --measure

# Measure the speed that docs/performance.md shows, about two hours; best on a machine that has nothing else to do.
bench: .venv/extras-oracle
	.venv/bin/python benchmarks/cpu_step.py
	.venv/bin/python benchmarks/cpu_decode.py
	.venv/bin/python benchmarks/cpu_tricks.py
	.venv/bin/python benchmarks/cpu_scaling.py

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python setup.cfg pyproject.toml
	.venv/bin/python -m pip install --quiet --editable .
	touch $@

.venv/extras-%: .venv/installed
	.venv/bin/python -m pip install --quiet --editable '.[$*]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache site lessons/out
