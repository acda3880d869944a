# One line each; what a target does is written in Python, under verif/ and sw_driver/.
READY := .venv/.ready
BIN := .venv/bin

.PHONY: help setup sim test lint typecheck verif formal mutate coverage bench docs clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

setup: $(READY)  ## make .venv, with .venv/bin/kvnode

$(READY): pyproject.toml setup.py verif/tools/setup.sh verif/tools/check_system.sh
	@verif/tools/setup.sh .venv

sim: $(READY)  ## replay a trace on the RTL [TRACE= REQUESTS= PRESET= WAVES=1]
	$(BIN)/kvnode sim $(if $(TRACE),--trace $(TRACE)) $(if $(REQUESTS),--requests $(REQUESTS)) $(if $(PRESET),--preset $(PRESET)) $(if $(WAVES),--waves)

test: $(READY)  ## the fast tests, then the short ones of the simulator
	$(BIN)/pytest tests
	$(BIN)/pytest verif -m "not long" -n auto --dist worksteal

lint: $(READY)  ## style
	$(BIN)/ruff check .

typecheck: $(READY)  ## types
	$(BIN)/mypy

verif: $(READY)  ## everything that runs on the simulator
	$(BIN)/pytest verif

formal: $(READY)  ## the proofs, and docs/proofs.md [ONLY=]
	$(BIN)/python -m kvnode.verif.formal.run $(if $(ONLY),--only $(ONLY),--page docs/proofs.md)

bench: $(READY)  ## measure, and write the reports
	$(BIN)/kvnode bench all

coverage: $(READY)  ## measure line, toggle and functional coverage, and write docs/coverage.md
	$(BIN)/python -m kvnode.verif.coverage

mutate: $(READY)  ## how good the tests are: small faults in the netlist, and how many are found [COUNT= SEED= FAST=1]
	$(BIN)/python -m kvnode.verif.mutation $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) $(if $(FAST),--fast)

docs: $(READY)  ## check the pages: every link and every path that they name
	$(BIN)/pytest tests/test_docs.py tests/test_readme.py

clean:  ## remove what was built; .venv stays
	rm -rf build dist *.egg-info sim_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
