# The words of this project. Each one sets up .venv by itself when it has to.
#
#   make test ARGS="-k ring"    hands ARGS to the command behind the word (test, laws, test-libraries, test-schedulers,
#                               test-kubernetes, validate-sharing, stress, mutants, fuzz, frozen, monotone, newest, bench, demo, results,
#                               results-quick)
#   make test WORKERS=8         runs the tests in eight processes instead of two
#   make lint PYTHON=python3.12 builds .venv from that interpreter
#
# pip's own environment variables hold (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, ...).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The tests start some hundred processes, each of which would compile the package's sources anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
WORKERS ?= 2
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
TESTS := -m pytest -n $(WORKERS) --dist loadfile -m "not scheduler and not slow and not library"

.PHONY: help format lint type test laws test-libraries test-schedulers test-kubernetes validate-sharing stress mutants fuzz frozen monotone newest docs bench demo results results-quick clean

help: ## List these words
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

format: $(STAMP) ## Rewrite the code in the project's format and mend what lint can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lint: $(STAMP) ## Check code style, format, direction of imports, files, and words
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/python .ci/check_files.py
	@$(BIN)/python .ci/plain_words.py

type: $(STAMP) ## Check types
	@$(BIN)/mypy

test: $(STAMP) ## Run the tests, all but the long ones and those that start real schedulers
	@$(BIN)/python $(TESTS) $(ARGS)

laws: $(STAMP) ## The same laws at length: twenty times the cases, and what takes long; half an hour
	@MESHWRIGHT_DRAWS=8 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -o timeout=3000 -m "not scheduler and not library" $(ARGS)

test-libraries: $(STAMP) ## Install RLlib, TorchRL, Tianshou and transformers apart; let each learn, or be traced; five minutes
	@bash .ci/libraries
	@PYTHONPATH=$(CURDIR)/$(VENV)/libraries $(BIN)/python -m pytest -m library tests/training/libraries tests/profiling tests/benchmarks tests/jobs $(ARGS)

test-schedulers: $(STAMP) ## Install and start real schedulers, launch what was exported, read the ranks back; look at the pages in a browser
	@bash .ci/schedulers
	@PYTHONPATH=$(CURDIR)/$(VENV)/launchers $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m scheduler --ignore-glob='*/test_kubernetes_*' tests/schedulers tests/export tests/plans/frameworks \
	  tests/live/web tests/evaluation/report $(ARGS)

test-kubernetes: $(STAMP) ## Build a real Kubernetes once, hold exports and the state that is read from it against it; the first time ten minutes
	@bash .ci/kubernetes
	@PATH="$$(bash .ci/kubernetes folder):$$PATH" $(BIN)/python -m pytest -m scheduler tests/schedulers/test_kubernetes_*.py tests/schedulers/service/test_kubernetes_*.py $(ARGS)

validate-sharing: $(STAMP) ## Hold the fast model of shared links against 500 simulated sets of jobs; goes on where it stopped; a quarter of an hour
	@$(BIN)/meshwright dev validate sharing --set sets=500 --set keep=.cache/sharing $(ARGS)

stress: $(STAMP) ## Start 2,000 jobs of each launch script whose hosts end at once, and 200 by submit under Slurm; minutes
	@MESHWRIGHT_LAUNCHES=2000 MESHWRIGHT_SLURM_JOBS=200 $(BIN)/python -m pytest -o timeout=3000 -k "together or dies" \
	  tests/export/launchers/test_remote_shell.py tests/schedulers/service/test_slurm_service.py $(ARGS)

mutants: $(STAMP) ## Change one thing at a time in what must be right and count what no test sees; tens of minutes
	@$(BIN)/python .ci/mutants.py $(ARGS)

fuzz: $(STAMP) ## Spoil inputs of every reader for minutes; ARGS="plans --minutes 10 --seed 3"
	@$(BIN)/python -m tests.fuzz $(ARGS)

frozen: $(STAMP) ## Hold the commands' outputs against those recorded in tests/frozen; ARGS="plan export" or "--record plan"; minutes
	@$(BIN)/python -m tests.frozen $(ARGS)

monotone: $(STAMP) ## Price 1,000 random jobs and layouts on a machine and on a better one; none may be worse; minutes
	@MESHWRIGHT_CASES=1000 $(BIN)/python -m pytest -o timeout=3000 tests/planning/test_better_machines.py $(ARGS)

newest: $(STAMP) ## Install the newest version of every dependency apart, whatever is pinned, and run the tests; weekly; gigabytes
	@bash .ci/newest
	@.cache/newest/bin/python $(TESTS) --deselect tests/test_house.py::test_what_is_installed_is_what_is_pinned $(ARGS)
	@.cache/newest/bin/python -m pytest -m library tests/profiling tests/jobs $(ARGS)

docs: $(STAMP) ## Build the documentation into docs/_build; a warning is an error
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "docs/_build/index.html"

bench: $(STAMP) ## Time the parts that have to be fast
	@$(BIN)/python -m benchmarks $(ARGS)

demo: $(STAMP) ## Train a small policy, evaluate it, export its decisions, write a report
	@$(BIN)/meshwright train preset:quickstart --overwrite
	@$(BIN)/meshwright evaluate runs/quickstart --benchmark quickstart --jobs 2 --out runs/quickstart
	@for format in slurm kubernetes; do \
		$(BIN)/meshwright export runs/quickstart --format $$format --out runs/quickstart/export/$$format || exit; done

results: $(STAMP) ## Train and evaluate everything anew and write the page of results; hours; ARGS="list --all" or "run table:NAME"
	@$(BIN)/python -m benchmarks.results $(ARGS)

results-quick: $(STAMP) ## The same in minutes, to see that everything runs, into runs/results-quick
	@$(BIN)/python -m benchmarks.results --quick $(ARGS)

clean: ## Remove caches and build outputs; .venv and runs/ stay
	@rm -rf build dist *.egg-info docs/_build docs/api benchmarks/out .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +
	@echo "Removed caches and build outputs."

# pip would compile all that there is, of which little is ever loaded; and left to the first run of the tests, each of its
# processes would compile these anew.
HEAVY := fastapi.testclient, hypothesis.stateful, matplotlib.pyplot, numba, pytest, sb3_contrib, schemathesis, scipy.optimize, \
  scipy.stats, torch.utils.tensorboard, torch_geometric.data

# The stamp appears last, so an interrupted or failed set-up is begun again. PyTorch goes first, at the pinned
# version, so that no other package draws in another build of it.
$(STAMP): pyproject.toml constraints.txt
	@rm -f $@
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "make: $(PYTHON) is not Python 3.11 or newer; name one that is: make PYTHON=python3.12 ..." >&2; exit 2; }
	@echo "Setting up $(VENV) from constraints.txt. This happens once and takes a few minutes."
	@$(PIP) --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "  1/2 PyTorch, the largest one"
	@if [ -t 1 ]; then quiet=; else quiet=-qq; fi; $(PIP) install --no-compile $$quiet -c constraints.txt torch setuptools
	@echo "  2/2 the other packages and meshwright itself"
	@$(PIP) install --no-compile -qq -c constraints.txt --no-build-isolation -e ".[dev]"
	@$(BIN)/python -W ignore -c "import $(HEAVY)"
	@touch $@
