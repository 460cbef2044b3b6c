# Everything runs in a virtual environment of its own, which is made when it is first needed:
#   make demo               see the worker at work
#   make test               the quick check, some minutes
#   make test-all           the whole test suite
#   make requirements       what the image installs, anew
#   make PYTHON=python3.12  with another interpreter
#   make chaos MINUTES=5    shorter than an hour
PYTHON ?= python3
MINUTES ?= 60

VENV := .venv
BIN := $(VENV)/bin
# A stamp is newer than pyproject.toml while what pyproject.toml asks for is installed.
RUNTIME := $(VENV)/.installed
TEST := $(VENV)/.installed-test
DEV := $(VENV)/.installed-dev
# Processes share the tests, each taking some of another's when it has done its own. The kernels are compiled before
# they start, or each of them would do it.
COMPILE = $(BIN)/python -m tests.kernels
# Where this is set, as in many images, each process would rewrite the assertions of all tests anew.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = $(COMPILE) && $(BIN)/python -m pytest --numprocesses auto --dist worksteal

.PHONY: help demo test test-all chaos lint types bench requirements clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(RUNTIME) ## run the worker on an embedded broker, with a live table
	$(BIN)/amf-worker demo

test: $(TEST) ## run the quick tests; those that need Kafka use KAFKA_BOOTSTRAP, Docker, or Java and Maven
	$(PYTEST) -m "not full"

test-all: $(TEST) ## run all tests, as CI does; with CI=true what the machine lacks is a failure
	$(PYTEST)

chaos: $(TEST) ## inject faults into workers and broker at random for MINUTES; needs Java and Maven
	$(BIN)/python -m tests.chaos --minutes $(MINUTES)

lint: $(DEV) ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV) ## check types
	$(BIN)/mypy

bench: $(TEST) ## run the benchmarks
	$(BIN)/python -m tests.benchmarks

requirements: $(TEST) ## renew the list of what the image installs, from the versions that are tested; needs uv
	$(BIN)/python -m pip freeze --exclude-editable | uv pip compile --quiet --constraints - --extra registry \
		--python-version 3.11 --python-platform linux --generate-hashes --only-binary :all: \
		--custom-compile-command "make requirements" --output-file deploy/requirements.txt pyproject.toml

clean: ## remove everything that was made, the environment included
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find amf worker tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNTIME): pyproject.toml | $(BIN)/python
	@echo "Installing amf-worker into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	@echo "Installing amf-worker with its extra '$*' into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "amf-worker needs Python 3.11 or newer, and $(PYTHON) is not that." >&2; \
		echo "Name one that is, for example: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
