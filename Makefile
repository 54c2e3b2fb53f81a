# Everything lives in the project's own folder: .venv (Python packages) and .devstack (servers and their data).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARGS ?=
RANGES ?= tests/unit tests/dags tests/integration/binlog/test_decode_types.py tests/integration/cli/test_command.py \
	tests/integration/kafka/test_kafka_publisher.py tests/contract tests/security/test_mysql_impersonators.py

export PYTHONPATH := $(CURDIR)/include
export CHANGEFEED_KERNEL_CACHE ?= $(CURDIR)/$(VENV)/kernel-cache
export PATH := $(CURDIR)/$(BIN):$(PATH)
unexport PYTHONDONTWRITEBYTECODE  # each Spark worker, Airflow task and command would compile all its modules again

.PHONY: help setup demo stop clean env lint test test-all test-durations test-unit test-faults test-snapshot test-replicate test-fuzz test-huge-file test-foreign test-consumers test-ranges bench-decode bench-formats bench-select bench-snapshot bench-replicate bench-end-to-end bench-overhead bench-scale audit lock

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

setup: $(READY) ## Install the Python packages into .venv

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep -oE '^uv==[0-9.]+' requirements.lock)"
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install --compile-bytecode --require-hashes -r requirements.lock
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install --no-deps --editable .
	$(BIN)/python -m changefeed.native  # compiles them, once
	-$(BIN)/python -m changefeed.spark.class_archive  # Spark starts in half the time with it; without Java there is none
	touch $@

demo: $(READY) ## Start real servers and Airflow, run the shop pipeline, show its records (ARGS=--once: verify and end; --follower: and copy them to a second MySQL)
	$(BIN)/python -m devstack demo $(ARGS)

stop: ## Stop what `make demo` started, and only that
	@test ! -x $(BIN)/python || $(BIN)/python -m devstack stop

clean: stop ## Remove the data of the servers; downloads stay
	@test ! -x $(BIN)/python || $(BIN)/python -m devstack clean

env: ## Write .env with random passwords and keys, for docker compose
	docker/env.sh

lint: $(READY) ## Format, lints and types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

test: lint ## What to run after each change: units, contracts, DAGs, and an end-to-end test of each promise on real servers
	$(BIN)/python -m devstack fetch --tests
	$(BIN)/python -m pytest -n 2 -m "not extended" --durations 20 $(ARGS)

test-all: lint ## The whole test suite; CI runs this (ARGS="-n 0": one test at a time)
	$(BIN)/python -m devstack fetch --tests
	$(BIN)/python -m pytest -n 3 --durations 40 $(ARGS)

test-durations: lint ## The whole suite, and how long each file takes, by which workers are balanced
	$(BIN)/python -m devstack fetch --tests
	$(BIN)/python -m pytest -n 3 --keep-durations $(ARGS)

test-unit: $(READY) ## The tests that need no server
	$(BIN)/python -m pytest tests/unit $(ARGS)

test-faults: $(READY) ## The faults suite in its long form: 200 random kills, and 100 on real Spark on each server
	CHANGEFEED_FAULTS=200 $(BIN)/python -m pytest tests/faults --timeout 7200 $(ARGS)

test-snapshot: $(READY) ## A million rows beside writers, killed 10 times, and 20 random snapshots a server (ARGS="-k mysql"; KILLS= ROWS= RUNS= SEED=)
	CHANGEFEED_SNAPSHOT_ROWS=$(or $(ROWS),1000000) CHANGEFEED_SNAPSHOT_KILLS=$(or $(KILLS),10) \
		CHANGEFEED_RUNS=$(or $(RUNS),20) CHANGEFEED_SEED=$(or $(SEED),0) \
		$(BIN)/python -m pytest -s -n 0 tests/faults/test_random_snapshot.py tests/faults/long_snapshot.py $(ARGS)

test-replicate: $(READY) ## 20 random runs of a follower for each pair of servers, killed anywhere (ARGS="-k mysql"; RUNS=100 SEED=7)
	CHANGEFEED_RUNS=$(or $(RUNS),20) CHANGEFEED_SEED=$(or $(SEED),0) \
		$(BIN)/python -m pytest -s -n 0 tests/integration/replicate/test_follower_random.py $(ARGS)

test-fuzz: $(READY) ## Damaged binlogs, with bounds checks on (CASES=1000000 SEED=any: more, and others)
	CHANGEFEED_FUZZ_CASES=$(or $(CASES),100000) CHANGEFEED_FUZZ_SEED=$(or $(SEED),seed) \
		$(BIN)/python -m pytest -n 0 tests/integration/binlog/test_decode_fuzz.py $(ARGS)

test-huge-file: $(READY) ## A binlog file of more than 4 GiB: its positions do not fit into four bytes
	$(BIN)/python -m pytest tests/integration/huge_file.py $(ARGS)

test-foreign: $(READY) ## MySQL's and MariaDB's own test statements, file by file, followed and rebuilt (ARGS="--server mariadb 'main/type*.test'": some; --follower)
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m foreign $(ARGS)

test-consumers: $(READY) ## Consumers that are not ours (JDBC sinks, Connect transforms, Flink, Spark, Avro): each ends with the source's rows
	$(BIN)/python -m devstack fetch --consumers
	$(BIN)/python -m pytest -n 0 --timeout 900 tests/consumers/test_consumers.py tests/consumers/long_consumers.py $(ARGS)

test-ranges: $(READY) ## The package with the oldest and the newest versions that pyproject.toml allows
	for end in lowest-direct highest; do \
		$(BIN)/uv venv --quiet --clear --python $(PYTHON) .devstack/ranges-venv && \
		$(BIN)/uv pip install --quiet --python .devstack/ranges-venv/bin/python --resolution $$end \
			--editable '.[airflow,spark]' && \
		$(BIN)/uv pip install --quiet --python .devstack/ranges-venv/bin/python \
			"$$(grep -oE '^pytest==[0-9.]+' requirements.txt)" pytest-timeout pytest-xdist hypothesis httpx psutil selenium && \
		CHANGEFEED_KERNEL_CACHE=$(CURDIR)/.devstack/ranges-venv/kernel-cache PATH=$(CURDIR)/.devstack/ranges-venv/bin:$$PATH \
			.devstack/ranges-venv/bin/python -m pytest $(RANGES) $(ARGS) || exit 1; \
	done

bench-decode: $(READY) ## Decoding: rows/s against mysql-replication, one core; Spark local[2] against local[1]
	$(BIN)/python tests/bench/bench_decode.py $(ARGS)

bench-formats: $(READY) ## Decoding into each format, and with headers, masks, conditions and functions: rows/s, one core
	$(BIN)/python tests/bench/bench_formats.py $(ARGS)

bench-select: $(READY) ## Reading rows: messages of a SELECT's rows against mysqldump
	$(BIN)/python tests/bench/bench_select.py $(ARGS)

bench-snapshot: $(READY) ## A snapshot of a million rows, against mysqldump and Debezium's (ARGS="--rounds 1 --no-debezium")
	$(BIN)/python tests/bench/bench_snapshot.py $(ARGS)

bench-replicate: $(READY) ## A follower: row changes/s against mysqlbinlog | mysql
	$(BIN)/python tests/bench/bench_replicate.py $(ARGS)

bench-end-to-end: $(READY) ## A live server into Kafka: rows/s, CPU of client and broker, seconds by phase (ARGS="bulk --rounds 1": a part)
	$(BIN)/python tests/bench/bench_end_to_end.py $(ARGS)

bench-overhead: $(READY) ## A window of ten rows from plan to checkpoint, against spark-submit of an empty script
	$(BIN)/python tests/bench/bench_overhead.py $(ARGS)

bench-scale: $(READY) ## Thousands of tables, large GTID sets, hundreds of files, large rows: seconds by phase, and memory
	$(BIN)/python tests/bench/bench_scale.py $(ARGS)

audit: $(READY) ## Known vulnerabilities of what requirements.lock names (pip-audit; asks pypi.org, so no part of `make test`; ARGS="-s osv": api.osv.dev)
	@test -n "$(findstring -s ,$(ARGS))" || $(BIN)/python -c \
		'import urllib.request; urllib.request.urlopen("https://pypi.org/pypi/pip/25.0/json", timeout=30)' 2>/dev/null || { \
		echo "Expected pypi.org's list of vulnerabilities (/pypi/NAME/VERSION/json), and found none: a proxy that serves" \
			"packages does not have it. Nothing was audited. Run this where pypi.org itself is reached, or, where" \
			"api.osv.dev is: make audit ARGS='-s osv'" >&2; exit 1; }
	$(BIN)/uv tool run --quiet --isolated --from pip-audit==2.10.1 pip-audit --requirement requirements.lock \
		--require-hashes --disable-pip --strict --progress-spinner off $(ARGS)

lock: $(READY) ## Resolve requirements.txt into requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-emit-find-links --no-annotate --no-header requirements.txt -o requirements.lock
