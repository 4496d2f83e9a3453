# Verax. Every target works as the first and only command on a fresh clone: it makes .venv, installs
# what it needs (once), and runs. `make` alone lists the targets.

PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest -n $(JOBS)
ARGS ?=
# coremltools has no wheel for Python 3.14; the message classes in it, all that is needed, are plain Python.
COREML = if $(1)/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 14))'; then \
	$(1)/bin/python -m pip install -qq --disable-pip-version-check --upgrade --no-deps --only-binary=:all: \
	--python-version 3.13 --target "$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
	coremltools==9.0; fi

.PHONY: help demo test targets newest quick durations docs lint format bench gpu campaign honest examples clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.core  ## Install, then compile, run and judge a real network, and find a planted mistake
	@$(BIN)/python examples/demo.py

test: $(VENV)/.test  ## Install all that the suite needs, run it whole, and lint beside it
	@mkdir -p out
	@$(MAKE) --no-print-directory lint > out/lint.txt 2>&1 & lint=$$!; \
		$(PYTEST) -m "not slow" --durations=15 --junitxml=out/tests.xml; tests=$$?; \
		wait $$lint; lint=$$?; cat out/lint.txt; test $$lint = 0 && exit $$tests

targets: $(VENV)/.test  ## The whole suite under each target that this machine can be told to have
	@set -e; for target in $$($(BIN)/python -c 'from verax.base import processor as p; \
		print(*(n for n in p.TARGETS if p.runs_here(n)))'); do \
		echo "VERAX_TARGET=$$target"; VERAX_TARGET=$$target $(PYTEST) -m "not slow"; done

newest: pyproject.toml  ## The suite beside the newest releases of every peer, in an environment of its own
	@$(PYTHON) -m venv $(VENV)-newest
	@$(VENV)-newest/bin/python -m pip install -qq --disable-pip-version-check -e '.[newest]'
	@$(call COREML,$(VENV)-newest)
	@$(VENV)-newest/bin/python -m pytest -n $(JOBS) -m "not slow"

quick: $(VENV)/.test  ## A sample of every room in 90 seconds on 2 cores, for daily work
	@mkdir -p out
	@$(PYTEST) -m "not slow" --quick --junitxml=out/quick.xml
	@$(BIN)/ruff check -q src tests examples benchmarks docs

durations: $(VENV)/.test  ## Choose the sample of `make quick` by the last `make test` and `make quick`
	@$(BIN)/python tests/measure.py

docs: $(VENV)/.docs  ## Build the site into out/site; a warning or a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "out/site/index.html"

lint: $(VENV)/.test  ## ruff (lint and format), and mypy over src/ and tests/
	$(BIN)/ruff check src tests examples benchmarks docs
	$(BIN)/ruff format --check src tests examples benchmarks docs
	$(BIN)/mypy

format: $(VENV)/.test  ## Let ruff fix and format what it can
	$(BIN)/ruff check --fix src tests examples benchmarks docs
	$(BIN)/ruff format src tests examples benchmarks docs

bench: $(VENV)/.test  ## The panel of networks beside every peer, 25 minutes (ARGS="--networks resnet18 --quick")
	$(BIN)/python benchmarks/panel.py --install $(ARGS)

gpu: $(VENV)/.test  ## A card of NVIDIA beside the processor: bits, and times beside PyTorch's, 8 minutes (ARGS="--networks resnet50")
	$(BIN)/python -m benchmarks.cuda $(ARGS)

campaign: $(VENV)/.test  ## The judge measured on random networks and planted mistakes (ARGS="plants --limit 2"), half an hour of chaos on a cluster, then the slow tests, and all that draw on fresh draws
	$(BIN)/python -m benchmarks.judge $(ARGS)
	$(BIN)/python -m benchmarks.chaos --seconds 1800
	$(PYTEST) -m "slow or hypothesis" --hypothesis-profile=fresh

honest: $(VENV)/.test  ## Honest runs of real architectures, and mistakes planted in them (ARGS="runs --only llama")
	$(BIN)/python -m benchmarks.honest $(or $(ARGS),runs)

examples: $(VENV)/.examples  ## Train the example network again and write its files
	$(BIN)/python examples/train.py

clean:  ## Remove what the targets above made
	rm -rf $(VENV) $(VENV)-newest out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Verax needs Python 3.11 or later; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(BIN)/python
	@echo "installing Verax into $(VENV) ..."
	@$(PIP) -e '.[compile,onnx,images]'
	@touch $@

$(VENV)/.test $(VENV)/.docs $(VENV)/.examples: $(VENV)/.%: $(VENV)/.core
	@echo "installing the extra '$*' ..."
	@$(PIP) -e '.[$*]'
	@$(if $(filter test,$*),$(call COREML,$(VENV)))
	@touch $@
