# Everything runs in .venv, which the first target that needs it creates from the locks.
# One environment, two stamps: the development lock holds the runtime lock, so neither install undoes the other.

SHELL := bash
BIN := .venv/bin
UV := $(shell command -v uv || echo $(BIN)/uv)
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
# A file's tests share compiled programs, so a file stays on one worker.
PARALLEL := $(if $(filter 1,$(CORES)),,-n auto --maxprocesses 8 --dist loadfile)
COMPILE = $(UV) pip compile pyproject.toml --quiet --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-header --no-emit-index-url --no-emit-find-links

.DEFAULT_GOAL := help
.PHONY: help demo test check validate bench lock clean

help: ## show this page
	@echo 'simworlds: simulated worlds with hidden laws. Start with:'
	@echo
	@echo '  make demo      four worlds, four seeds each, every reference rung; results in runs/demo'
	@echo '                 (make demo ARGS=--all takes all sixteen worlds)'
	@echo '  make test      the tests'
	@echo
	@echo 'All targets:'
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s%s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo 'The first target that needs it creates .venv (Python 3.11 or newer; uv makes it quick, but is not needed).'
	@echo 'Variables: PYTHON=python3.12 picks the interpreter of a new .venv; ARGS goes to pytest,'
	@echo "as in: make test ARGS='tests/scoring -x'"

.venv/.runtime: requirements.lock pyproject.toml tools/environment.sh
	@tools/environment.sh requirements.lock
	@touch $@

.venv/.dev: requirements-dev.lock requirements.lock pyproject.toml tools/environment.sh
	@tools/environment.sh requirements-dev.lock
	@touch .venv/.runtime $@

$(BIN)/uv: .venv/.dev

demo: .venv/.runtime ## run the reference ladder on four worlds (ARGS=--all: on all sixteen) and draw it (runs/demo)
	$(BIN)/simworlds ladder --world A4,B2,C2,D4 --seed 0..3 --out runs/demo $(ARGS)

test: .venv/.dev ## run the tests, on all cores; the first run compiles, later ones reuse .cache
	$(BIN)/pytest $(PARALLEL) $(ARGS)

check: .venv/.dev ## lint, format, types and the rules between the packages
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/pytest --quiet tests/test_architecture.py

validate: .venv/.dev ## hold all worlds against published values, then the long tests
	$(BIN)/simworlds validate $(ARGS)
	$(BIN)/pytest $(PARALLEL) -m validation --deselect tests/experiments/test_validation_checks.py

bench: .venv/.dev ## measure speed against named rivals (ARGS=--quick: under two minutes) into runs/bench
	$(BIN)/simworlds bench --out runs/bench $(ARGS)

lock: $(UV) ## resolve both locks anew; ARGS=--upgrade also moves the pins forward
	$(COMPILE) --output-file requirements.lock $(ARGS)
	$(COMPILE) --output-file requirements-dev.lock --extra dev --constraint requirements.lock $(ARGS)

clean: ## remove .venv, caches and builds; what is in runs/ stays
	rm -rf .venv .cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
