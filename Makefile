.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install run test check bench clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## create .venv and install the package with its command and the development tools

$(STAMP): setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

run: install ## install and serve on 127.0.0.1:8080, data under var/
	$(BIN)/persistence serve

test: install ## install and run the tests (under 5 minutes)
	$(BIN)/python -m pytest -n auto --dist loadgroup tests

check: install ## lint (ruff), types (mypy strict) and layering
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layering.py

bench: install ## print the speed of the service beside the least a server could do
	$(BIN)/python bench/bench.py

clean: ## remove what make made; data under var/ stays
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
