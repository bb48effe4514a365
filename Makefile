# Each target does all its own set-up. PYTHON picks the interpreter (3.11 or newer).
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
BIN := $(VENV)/bin
export PATCHKIT_CACHE ?= $(CURDIR)/.cache

.PHONY: canary-faults engine-matrix drafts demo test lint docs matrix pairs crash verify-matrix mutants watch-servers watch-soak bench clean

# The extras pin torch 2.13.0; install a CPU build into $(VENV) first to save gigabytes.
$(VENV)/installed: setup.cfg
	$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV): about 1.4 GB, some minutes"
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[dev,verify,watch,plot]'
	touch $@

demo: $(VENV)/installed
	docs/demo.sh $(abspath $(BIN))

test: $(VENV)/installed lint
	$(BIN)/python -m pytest -n $(JOBS) -m "not matrix and not crash and not servers and not engines"

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# all 58 releases: apply, idempotence, strip, sites, golden lines, LibCST's own runner
matrix: $(VENV)/installed
	$(BIN)/python tests/matrix.py

# every two recipes on every sampled release: any order, any one taken away; and
# together under patchkit verify, on four
pairs: $(VENV)/installed
	$(BIN)/python tests/pairs.py
	$(BIN)/python tests/running_pairs.py

# the pages under docs/recipes/, from the recipes
docs: $(VENV)/installed
	$(BIN)/python docs/recipe_pages.py

# every kill point of every scenario
crash: $(VENV)/installed
	$(BIN)/python -m tests.crash

# every check of patchkit verify on every release from 0.4.9, patched
verify-matrix: $(VENV)/installed
	$(BIN)/python tests/verify_matrix.py

# planted faults of draft checkpoints under every release from 0.4.9, and a run of each
drafts: $(VENV)/installed
	$(BIN)/python tests/draft/fault_table.py $(RELEASES)

# whether patchkit verify catches what is wrong: broken files of four releases
mutants: $(VENV)/installed
	$(BIN)/python tests/mutants/table.py

# SGLang's own engine with the canary pair, on every release from 0.5.5
engine-matrix: $(VENV)/installed
	$(BIN)/python tests/engine/engine_matrix.py
	$(BIN)/python -m pytest -n 0 -m engines tests/engine

# planted faults in SGLang's own engine, each with its prediction; writes docs/canary.md
canary-faults: $(VENV)/installed
	$(BIN)/python tests/canary/fault_table.py

# a real SGLang server on this CPU, ready and with every kind of fault
SERVER := $(PATCHKIT_CACHE)/venv-server
$(SERVER)/installed: setup.cfg
	$(PYTHON) -m venv $(SERVER)
	$(SERVER)/bin/python -m pip install --disable-pip-version-check -e '.[verify,server]'
	touch $@

watch-servers: $(VENV)/installed $(SERVER)/installed
	PATCHKIT_SERVER_PYTHON=$(SERVER)/bin/python $(BIN)/python -m pytest -n 0 -m servers tests/watch tests/canary

watch-soak: $(VENV)/installed $(SERVER)/installed
	PATCHKIT_SERVER_PYTHON=$(SERVER)/bin/python $(BIN)/python tests/watch/soak.py

bench: $(VENV)/installed
	$(BIN)/python bench/commands.py

clean:
	rm -rf $(VENV) .cache build *.egg-info
