# Few targets; CI calls the same ones. A fresh machine needs Python 3.11 with venv, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
export PATH := $(CURDIR)/$(BIN):$(PATH)
unexport PYTHONDONTWRITEBYTECODE  # else every short process compiles everything again

.PHONY: setup demo test test-real test-all check bench proto image docs
setup: $(STAMP)
$(STAMP): requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-deps --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

demo: setup           ## the real daemon on a recorded machine
	$(BIN)/liken demo

test: setup           ## the quick path: unit, contract, namespaces
	$(BIN)/pytest -n auto --dist loadgroup -m "not cluster and not vm and not image and not browser" $(ARGS)

test-real: setup      ## a real kernel, a real Kubernetes, the image, the browser
	.ci/tiers

test-all: test test-real  ## every tier; absent tools skip with a reason

check: setup          ## lint, format, types, layers, generated code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python proto/generate.py --check

bench: setup          ## the budgets, measured
	$(BIN)/python -m benchmarks

proto: setup          ## regenerate liken/wire from proto/
	$(BIN)/python proto/generate.py

image: setup          ## dist/liken-<version>.tar (OCI) and its SBOM
	container/build-image

docs: setup           ## the site, strictly: no warning, no dead link
	$(BIN)/python docs/generate.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
