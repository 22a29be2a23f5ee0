# Every target works on a fresh clone: it makes the environment first, and needs nothing before it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SPARK := $(VENV)/.spark
BROWSER := $(VENV)/.browser

.PHONY: demo test bench bench-live fuzz robustness lint clean
demo: $(READY)
	$(BIN)/kafka-dissector summary captures/kafka-4-quotas.pcap.zst

test: $(READY) $(SPARK) $(BROWSER)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -n auto --dist loadgroup

lint: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python -m docs.generate

bench: $(READY) $(SPARK)
	-$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-bench.txt
	$(BIN)/python -m compileall -q dissector analysis
	$(BIN)/python -m bench

# As root: Kafka traffic over a pair of virtual interfaces, and sniff at its other end.
bench-live: $(READY)
	$(BIN)/python -m bench.live

fuzz: $(READY)
	-$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-fuzz.txt
	$(BIN)/python -m tests.fuzz

robustness: $(READY)
	$(BIN)/python -m tests.robustness

$(READY): pyproject.toml requirements.txt $(wildcard dissector/kernel/*.[ch])
	./setup.sh $(PYTHON) $(VENV)
	touch $@

$(SPARK): $(READY) requirements-spark.txt
	./setup.sh $(PYTHON) $(VENV) spark
	touch $@

$(BROWSER): $(READY)
	./setup.sh $(PYTHON) $(VENV) browser
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
