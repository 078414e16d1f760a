# Everything runs from .venv, which `make setup` creates. `make` lists the targets.
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
PORT ?= 8000
export PATH := $(BIN):$(PATH)
# Nothing that runs here reports to its vendor (trueodds/processes/privacy.py, and `prefect` itself).
export DVC_NO_ANALYTICS := 1
export DO_NOT_TRACK := 1
export ORT_DISABLE_TELEMETRY := 1
# Hundreds of processes run this code in the tests; some environments have each compile it anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run demo serve prefect prefect-stop test chosen-tests test-full test-containers lint docs site constraints constraints-diff clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(VENV)/.installed ## create .venv with everything the project needs

# A python3.N may be on the PATH and yet not start (version managers leave such shims): each is tried. The system's goes first:
# pyenv builds Python without optimisations, and the tests take a tenth longer with it. An environment that exists keeps its own.
# The packages have 24,000 files. All processors compile them, but for a third, of which little is imported: the packages' own
# tests, parts of large packages, and tools. That is compiled when it is imported.
SELDOM := transformers|timm/models|torch/_inductor|torch/testing|sympy/physics|pygments/lexers|moto|mypyc?|debugpy|apprise|celery|redis|asyncssh|IPython
PYTHONS = $(or $(PYTHON),$(strip $(wildcard $(BIN)/python) /usr/bin/python3.11 python3.11 python3.12 python3.13 python3))
# As trueodds/processes/lazy.py does for our own commands, for all programs of the environment: dvc and prefect start often.
START := import atexit, gc; gc.set_threshold(*gc.get_threshold()[:2], 1000); atexit.register(gc.freeze)
$(VENV)/.installed: pyproject.toml docker/constraints.txt
	@set -e; python=; \
	for candidate in $(PYTHONS); do \
	  if $$candidate -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then echo "TrueOdds needs Python 3.11, 3.12 or 3.13; tried without success: $(PYTHONS). Install python3.11, or name one: make setup PYTHON=/path/to/python3.11" >&2; exit 1; fi; \
	theirs=$$($(BIN)/python -Ic 'import json, importlib.metadata as m; print(json.loads(m.distribution("trueodds").read_text("direct_url.json"))["url"].removeprefix("file://"))' 2>/dev/null || :); \
	if [ -n "$$theirs" ] && [ "$$theirs" != "$(CURDIR)" ] && [ -z "$(TAKE)" ]; then \
	  echo "$(VENV) runs the code of $$theirs, and after a setup from here the code of $(CURDIR). Give this checkout an environment of its own (leave out VENV), or say that you mean it: make setup VENV=$(VENV) TAKE=1" >&2; exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$($$python --version) ($$python)."; \
	if $$python -c 'import sys; sys.exit(sys.version_info[:2] == (3, 11))'; then \
	  echo "Beside torch, this Python's package index may send several GB of CUDA libraries; with python3.11 it is about 0.6 GB, if your index has torch's CPU build."; \
	else echo "About 0.6 GB will be downloaded (several GB where your package index has only the CUDA build of torch)."; fi; \
	$$python -m venv $(VENV); \
	$(BIN)/python tools/install.py -e '.[dev]'; \
	echo '$(START)' > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/trueodds-start.pth"; \
	(cd $(VENV)/lib && $(BIN)/python -m compileall -qq -j 0 -x '/(tests?|$(SELDOM))/' .) || :; \
	touch $@

# python -m: the code of this folder, whatever VENV has installed.
# These three build in .run/, of the code, parameters and data here, uncommitted changes too; `dvc repro` builds here.
run: setup ## pipeline on the embedded data, then serve, predict, label and report; prints a summary
	@echo "[1/2] pipeline: dvc repro in .run/workspace (stages that are up to date are skipped)"
	@python -m pipeline repro
	@echo "[2/2] service: publish, serve, predict, label, report"
	@python -m pipeline demo --artifacts .run/artifacts --work .run/service

demo: setup ## two minutes with the page open: a calibrated model meets worse images, and the alarm fires
	@python -m pipeline repro
	@python -m pipeline demo --live --artifacts .run/artifacts --work .run/live

serve: setup ## keep the service up on http://127.0.0.1:$(PORT), with models/ and store.sqlite
	@python -m pipeline repro
	@python -m pipeline publish --bundle .run/artifacts/bundle --role default --unnamed --why "make serve"
	@python -m service --port $(PORT)

prefect: setup ## start a Prefect server and a worker here and register the deployments of prefect.yaml
	@python -m pipeline.flows up

prefect-stop: ## end what make prefect started
	@python -m pipeline.flows down

# Side by side: mypy, on a cold cache half a minute of one core, fills what the tests leave idle. TESTS: other tests, in more processes.
test: setup ## lint, type check and the fast tests
	@+$(MAKE) --no-print-directory -j 2 lint chosen-tests

test-full: TESTS = -n 4
test-full: chosen-tests ## every test, the long ones too

# Without the variables by which a test's own `make` would take itself for a part of this one.
TESTS ?= -m "not full" -n 4
chosen-tests: setup
	@env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u TESTS OMP_NUM_THREADS=1 python -m pytest $(TESTS) --dist loadfile

test-containers: setup ## docker/compose.yaml on a Docker engine: DOCKER_HOST's, or that of the script TRUEODDS_ENGINE
	@python -m pytest -n 0 -m containers tests/containers

lint: setup ## ruff, mypy, and the language of pages and docstrings
	@ruff check --quiet . && ruff format --check --quiet . && python -m tools.prose && mypy

docs: setup ## write generated files anew: tables of the pages, files of `trueodds init`
	@python -m tools.tables && python -m tools.starter

site: setup ## build the documentation site in .run/site, without a network
	@python -m tools.site

constraints: setup ## take the newest versions that pyproject.toml admits, with hashes for the images
	@python -m tools.constraints

constraints-diff: setup ## say which versions `make constraints` would change
	@python -m tools.constraints --diff

clean: ## remove what was built; the DVC cache, your models and stores stay
	rm -rf .run .runs .checkpoints .pytest_cache .mypy_cache .ruff_cache .hypothesis
	git clean -qfdX artifacts 2>/dev/null || rm -rf artifacts # what git tracks there stays
	git worktree prune
