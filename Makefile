# Every target sets itself up: nothing but python3 (3.11 or newer) and the package registry is needed.
# `make test` and `make bench` also use node and npm, for the official TypeScript SDK and for agents that others
# have written, where they exist.

PYTHON ?= python3
WORKERS ?= 4
VENV := .venv
LOCK := build/lock
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# A lock names everything, so there is nothing to resolve: pip only compares hashes.
LOCKED := --no-deps --require-hashes --requirement
BIN := $(VENV)/bin
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
NODE := tests/interop/node
AGENTS := tests/interop/agents
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.demo-ready
NODE_READY := $(NODE)/node_modules/.ready
# Measuring makes tests twice as slow, so it is done for the layers that promise a coverage, and those alone.
MEASURED := $(addprefix tests/,wire schema runtime store events fields redaction agent client workflow langchain \
	recording cli/test_record.py)

define NEW_VENV
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Coupler needs Python 3.11 or newer: set PYTHON=/path/to/python3.11" >&2; exit 1; }
$(PYTHON) -m venv $(VENV)
endef

# Byte code is kept, whatever the shell says: the tests start thousands of processes.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help demo test test-long coverage lint format attack bench interop docs reference lock sbom dist clean node

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(if $(wildcard $(READY)),$(READY),$(DEMO_READY)) ## Run a workflow with agents over ACP, in this terminal, without a key
	@$(BIN)/python examples/demo $(DEMO_ARGS)

test: $(READY) node ## Run the tests in parallel and in random order
	@# In a new clone pytest rewrites all assertions: once, and not in all workers at the same time.
	@test -n "$$(find tests -name '*pytest*.pyc' -print -quit)" || \
		$(BIN)/python -m pytest --collect-only -qq > /dev/null || true
	$(PYTEST) -m "not long" $(PYTEST_ARGS)

test-long: $(READY) node ## Run the tests that take long: soaks, kills, other people's programs, the tutorials
	$(PYTEST) -m long $(PYTEST_ARGS)

coverage: $(READY) ## Measure the branch coverage of the layers that promise one, processes included
	$(BIN)/coverage erase
	$(PYTEST) --cov --cov-report= $(MEASURED) $(PYTEST_ARGS)
	$(BIN)/coverage report
	$(BIN)/coverage json -q -o coverage.json
	$(BIN)/python scripts/check_coverage.py coverage.json

lint: $(READY) ## Check format, style, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## Format the code and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) node ## Measure Coupler, both official SDKs and bridges to LangChain
	$(BIN)/python bench $(BENCH_ARGS)

attack: $(READY) ## Attack Coupler from outside for some minutes: frames, kills, floods, disguises, secrets
	$(BIN)/python attack $(ATTACK_ARGS)

interop: $(READY) ## Drive agents that others have written, and compare with docs/interop.md
	$(BIN)/python interop $(INTEROP_ARGS)

docs: $(READY) ## Build the manual, to be opened in site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

reference: $(READY) ## Write what the manual has from the code
	for script in scripts/generate_*_docs.py; do $(BIN)/python $$script || exit 1; done

# Every file of each version, for all systems and Pythons. `make lock UPGRADE=` keeps what is pinned as it is, and adds
# what pyproject.toml newly asks for. The versions of the demo and of the extras are those that are tested.
UPGRADE ?= --upgrade
COMPILE = $(LOCK)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock"
TESTED := --constraint requirements-dev.txt

lock: ## Pin the newest versions with their hashes: development, demo, extras, the TypeScript SDK, agents of others
	rm -rf $(LOCK) && $(PYTHON) -m venv $(LOCK)
	$(LOCK)/bin/python $(PIP_INSTALL) $(LOCKED) requirements-lock.txt
	$(COMPILE) $(UPGRADE) --group lock --output-file requirements-lock.txt
	$(COMPILE) $(UPGRADE) pyproject.toml --group dev --output-file requirements-dev.txt
	$(COMPILE) pyproject.toml --extra chat --extra coder --group demo $(TESTED) --output-file requirements-demo.txt
	$(COMPILE) $(UPGRADE) pyproject.toml --all-extras $(TESTED) --output-file requirements.txt
	$(MAKE) --no-print-directory sbom
	for directory in $(NODE) $(AGENTS); do (cd $$directory && \
		npm install --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund --silent); done
	$(if $(UPGRADE),$(MAKE) --no-print-directory interop INTEROP_ARGS=--lock)
	rm -rf $(LOCK)

sbom: $(READY) ## Write the software bill of materials, from requirements.txt
	$(BIN)/python scripts/generate_sbom.py

# Without isolation, because the build backend is pinned with its hash. The same commit gives the same bytes.
dist: sbom ## Build a release into dist/: wheel, source distribution, software bill of materials, hashes
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --no-isolation
	cp coupler.cdx.json dist/
	cd dist && sha256sum coupler* > SHA256SUMS

clean: ## Remove everything that was built or installed
	rm -rf $(VENV) $(NODE)/node_modules $(AGENTS)/node_modules build dist site .coverage .coverage.* coverage.json \
		.hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml requirements-dev.txt
	$(NEW_VENV)
	$(BIN)/python $(PIP_INSTALL) $(LOCKED) requirements-dev.txt
	$(BIN)/python $(PIP_INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

# Less than development needs, in the same versions: somebody waits for the first picture.
# Most of it is never imported, so only what is gets compiled.
$(DEMO_READY): pyproject.toml requirements-demo.txt
	$(NEW_VENV)
	$(BIN)/python $(PIP_INSTALL) --no-compile $(LOCKED) requirements-demo.txt
	$(BIN)/python $(PIP_INSTALL) --no-compile --no-build-isolation --no-deps --editable .
	@touch $@

# Without node the tests that need it are skipped; under CI they must run.
node: $(READY)
	@if command -v node >/dev/null && command -v npm >/dev/null; then \
		$(MAKE) --no-print-directory $(NODE_READY) && $(BIN)/python tests/labs/others.py; \
	elif [ -n "$$CI" ]; then \
		echo "node and npm are missing: install Node.js 20 or newer for the TypeScript SDK tests" >&2; exit 1; \
	else \
		echo "node and npm are missing: what needs the TypeScript SDK is left out" >&2; \
	fi

$(NODE_READY): $(NODE)/package.json $(NODE)/package-lock.json
	cd $(NODE) && npm ci --no-audit --no-fund --silent
	@touch $@
