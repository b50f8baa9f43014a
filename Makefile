# A thin caller of tasks.py, which does the work (and is there for systems without make).
# `make test ARGS="tests/labml_opt -k master"` hands on arguments; `make PYTHON=python3.12 site` picks a Python.
PYTHON ?= python3
COMMANDS = site serve test check check-oldest translate figures notebooks notebooks-all bench

help:
	@$(PYTHON) tasks.py

$(COMMANDS):
	@$(PYTHON) tasks.py $@ $(ARGS)

.PHONY: help $(COMMANDS)
