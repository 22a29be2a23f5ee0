# Every target works on a fresh clone: it makes the environment first, and needs nothing before it.
PYTHON ?= python3
# Tests start hundreds of commands, which would compile all modules each time.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
READY := $(VENV)/.ready
SPARK := $(VENV)/.spark
BROWSER := $(VENV)/.browser
# The oldest and the newest packages that pyproject.toml allows. The newest NumPy needs Python 3.12.
PYTHON_oldest ?= python3.11
PYTHON_newest ?= python3.13
QUICK := tests/dissector/exchanges tests/dissector/packets tests/dissector/protocol \
  tests/dissector/records tests/dissector/streams tests/dissector/tls tests/analysis/sql \
  $(addprefix tests/analysis/,export input kafka names summary) \
  $(filter-out %_stored.py %_commands.py %_cli.py %_terminal.py %_python.py %_startup.py,\
    $(wildcard tests/analysis/test_*.py tests/analysis/answers/test_*.py)) \
  tests/bench --ignore tests/dissector/streams/test_streams_properties.py \
  --ignore tests/dissector/packets/test_packets_byte_input.py \
  --ignore tests/dissector/packets/test_packets_live.py \
  --ignore tests/dissector/packets/test_packets_peers.py \
  --ignore tests/dissector/packets/test_packets_remote.py \
  --ignore tests/analysis/input/test_input_exported.py \
  --ignore tests/dissector/protocol/test_protocol_kafka_schemas.py

.PHONY: demo check static quick test coverage test-oldest test-newest bench bench-live site fuzz robustness lint lock clean
demo: $(BASE)
	$(BIN)/kafka-dissector summary captures/kafka-4-quotas.pcap.zst

# Each test function of the units once, without those that take seconds, start processes or read all
# captures: less than a minute on two cores.
check: $(READY)
	$(MAKE) --no-print-directory -j 2 static quick

static: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m tools.check_words
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

quick: $(READY)
	$(BIN)/pytest --quick -n 2 $(QUICK)

test: $(READY) $(SPARK) $(BROWSER)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m tools.check_words
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -n auto

# Tracing makes tests slower; so `make test` does not measure.
coverage: $(READY) $(SPARK) $(BROWSER)
	$(BIN)/pytest -n auto --cov --cov-report term:skip-covered

# The browser and the notebooks are left to `make test`; so is the work guard, whose counts are those of
# the pinned packages. Without Java, the tests of Spark are skipped.
test-oldest test-newest: test-%: .venv-%/.ready
	.venv-$*/bin/python -m pytest -n auto tests/dissector tests/analysis tests/captures \
	  --ignore tests/analysis/report/test_report_browser.py --ignore tests/analysis/report/test_report_hostile.py \
	  --ignore tests/dissector/test_work_guard.py

lint: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python -m tools.generate_docs

bench: $(READY) $(SPARK)
	-$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements.lock --group bench
	$(BIN)/python -m compileall -q dissector analysis kafka_dissector
	$(BIN)/python -m bench

# As root: Kafka traffic over a pair of virtual interfaces, and sniff at its other end.
bench-live: $(READY)
	$(BIN)/python -m bench.live

# The documentation site, in build/site.
site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

fuzz: $(READY)
	-$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements.lock --group fuzz
	$(BIN)/python -m tests.fuzz
	SLOW=1 $(BIN)/pytest tests/dissector/native/test_native_hostile.py
	$(BIN)/pytest -n auto -m hypothesis --hypothesis-profile random
	SEED=$$(date +%s) $(BIN)/pytest -n auto tests/dissector/test_capture_same_packets.py
	$(BIN)/python -m tests.rewriting
	$(BIN)/python -m tests.rewriting --runs

robustness: $(READY)
	$(BIN)/python -m tests.robustness

GROUPS := dev spark connect bench fuzz record lock
# Pins of all dependency groups and extras; versions change only where pyproject.toml demands it.
# `make lock UPGRADE=--upgrade` takes the newest.
lock: $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c requirements.lock --group lock
	$(BIN)/uv pip compile pyproject.toml --quiet --all-extras --python-version 3.11 $(GROUPS:%=--group %) \
	  --no-annotate --custom-compile-command 'make lock' $(UPGRADE) -o requirements.lock

$(BASE): pyproject.toml requirements.lock setup.sh setup.py $(wildcard dissector/_native/*.p*)
	./setup.sh $(PYTHON) $(VENV)
	touch $@

$(READY): $(BASE)
	./setup.sh $(PYTHON) $(VENV) dev
	touch $@

.venv-%/.ready: pyproject.toml setup.sh tools/lower_bounds.py setup.py $(wildcard dissector/_native/*.p*)
	./setup.sh $(PYTHON_$*) .venv-$* $*
	touch $@

$(SPARK): $(READY)
	./setup.sh $(PYTHON) $(VENV) spark
	touch $@

$(BROWSER): $(READY)
	./setup.sh $(PYTHON) $(VENV) browser
	touch $@

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
