# All files are in the project's folder: .venv (Python packages) and .devstack (servers and their data).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(or $(wildcard $(READY)),$(VENV)/.demo-ready)
ARGS ?=
RANGES ?= tests/unit tests/dags tests/integration/binlog/test_decode_types.py tests/integration/cli/test_command.py \
	tests/integration/kafka/test_kafka_publisher.py tests/contract tests/security/test_mysql_impersonators.py

export PYTHONPATH := $(CURDIR)/include
export CHANGEFEED_KERNEL_CACHE ?= $(CURDIR)/$(VENV)/kernel-cache
export PATH := $(CURDIR)/$(BIN):$(PATH)
unexport PYTHONDONTWRITEBYTECODE  # otherwise each Spark worker, Airflow task and command compiles all its modules again

.PHONY: help setup wheel release demo example stop clean env lint docs reference test test-all test-durations test-long test-unit test-faults test-snapshot test-replicate test-fuzz test-huge-file test-foreign test-consumers test-ranges bench-decode bench-formats bench-select bench-snapshot bench-replicate bench-end-to-end bench-overhead bench-commands bench-pipelines bench-freshness bench-commit-log bench-list bench-scale audit lock soak

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

setup: $(READY) ## Install all Python packages into .venv, and compile the kernels

$(READY): requirements.lock pyproject.toml
	$(call install,--compile-bytecode -r requirements.lock)
	@echo "Compiling the kernels (about 50 s of one core) and, beside them, an archive of Spark's classes (20 s) …"
	@$(BIN)/python -m changefeed.native & kernels=$$!; \
		$(BIN)/python -m changefeed.spark.class_archive \
		|| echo "No archive of Spark's classes was created, so Spark starts more slowly. The reason is above."; \
		wait $$kernels
	touch $@

# Only what the demo runs on. While the servers are fetched, the demo compiles the kernels and installs pyspark, which is
# larger than all other packages together. Modules are compiled when they are first imported: most never are.
$(VENV)/.demo-ready: requirements-demo.lock pyproject.toml
	@echo "Packages: installing those that the demo runs on into $(VENV), without pyspark …"
	@start=$$(date +%s); \
		$(call install,--quiet --no-deps -r requirements-demo.lock) && \
		echo "Packages: installed in $$(($$(date +%s) - start)) s"
	@touch $@

# Installs packages of a lock file, and this project. pyspark is built from its source archive: its wheel is not compressed.
install = $(PYTHON) -m venv $(VENV) && \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep -oE '^uv==[0-9.]+' requirements.lock)" && \
	export VIRTUAL_ENV=$(CURDIR)/$(VENV) && \
	$(BIN)/uv pip install --require-hashes --config-settings-package pyspark:--build-option=--compression=stored $(1) && \
	$(BIN)/uv pip install --quiet --no-deps --editable .

demo: $(DEMO_READY) ## Start real servers and Airflow, run the shop pipeline, show its records (ARGS=--once: exit when verified; --follower: also replicate to a second MySQL; --continuous: a window a second)
	@$(BIN)/python -m devstack demo $(ARGS)

example: $(READY) ## Run an example of examples/ (NAME=commit-log; ARGS=--stay: keep its web page until Ctrl-C)
	@test -f "examples/$(NAME)/run.py" || { echo "Expected NAME to be one of: $(patsubst examples/%/run.py,%,$(wildcard examples/*/run.py));" \
		"found '$(NAME)'. Nothing was run. For instance: make example NAME=commit-log" >&2; exit 2; }
	$(BIN)/python examples/$(NAME)/run.py $(ARGS)

stop: ## Stop the servers that `make demo` started
	@test ! -x $(BIN)/python || $(BIN)/python -m devstack stop

clean: stop ## Remove the data of the servers, but not the downloads
	@test ! -x $(BIN)/python || $(BIN)/python -m devstack clean

env: ## Write .env with random passwords and keys, for docker compose
	docker/env.sh

wheel: $(READY) ## Build a wheel with kernels for any CPU of this architecture, into build/
	rm -rf include/changefeed/kernels
	umask 022 && $(BIN)/python -m changefeed.native --into include/changefeed/kernels
	$(BIN)/uv build --wheel --out-dir build .
	rm -rf include/changefeed/kernels

release: wheel ## Build the wheel and the source archive, and check both in a virtual environment of their own
	umask 022 && $(BIN)/uv build --sdist --out-dir build .
	for package in build/changefeed-*.whl build/changefeed-*.tar.gz; do \
		$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/check && \
		$(BIN)/uv pip install --quiet --python build/check/bin/python $$package && \
		env -u PYTHONPATH build/check/bin/changefeed --version || exit 1; \
	done
	rm -rf build/check

lint: $(READY) ## Check format, lint rules, types, and links of the documentation
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs: $(READY) ## Build the documentation into build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

reference: $(READY) ## Generate the pages of docs/reference/ that list what the code declares
	AIRFLOW_HOME=$(CURDIR)/build/airflow PYTHONPATH=$(PYTHONPATH):$(CURDIR)/plugins $(BIN)/python docs/reference_pages.py

test: lint ## The tests to run after each change: unit, contract and DAG tests, and an end-to-end test of each guarantee on real servers
	$(BIN)/python -m devstack fetch --tests
	$(BIN)/python -m pytest -n 2 -m "not extended and not long" --durations 20 $(ARGS)

test-all: lint ## The complete test suite, as in CI (ARGS="-n 0": one test at a time)
	$(BIN)/python -m devstack fetch --tests
	$(BIN)/python -m pytest -n 3 -m "not long" --durations 40 $(ARGS)

test-durations: lint ## The complete suite; records the duration of each file, which balances the workers
	$(BIN)/python -m devstack fetch --tests
	$(BIN)/python -m pytest -n 3 -m "not long" --keep-durations $(ARGS)

test-long: $(READY) ## Further cases of tests that are in `make test-all`: other stages of a kill, other servers and formats
	$(BIN)/python -m devstack fetch --tests
	CHANGEFEED_SEED=$(or $(SEED),0) $(BIN)/python -m pytest -n 3 -m "long or random" $(ARGS)

test-unit: $(READY) ## The tests without servers
	$(BIN)/python -m pytest tests/unit $(ARGS)

test-faults: $(READY) ## The long form of the fault tests: 200 random kills, and 100 on real Spark for each server
	CHANGEFEED_FAULTS=200 $(BIN)/python -m pytest tests/faults --timeout 7200 $(ARGS)

soak: $(READY) ## Half an hour of windows, one each 30 seconds, and of continuous runs, while a writer does everything, for each kind of server and Spark (MINUTES=30; ARGS="-k mysql-local")
	CHANGEFEED_SOAK_MINUTES=$(or $(MINUTES),30) $(BIN)/python -m pytest -s -n 0 tests/faults/test_soak.py $(ARGS)

test-snapshot: $(READY) ## Snapshots with concurrent writers: a million rows with 10 kills, and 20 random snapshots for each server (ARGS="-k mysql"; KILLS= ROWS= RUNS= SEED=)
	CHANGEFEED_SNAPSHOT_ROWS=$(or $(ROWS),1000000) CHANGEFEED_SNAPSHOT_KILLS=$(or $(KILLS),10) \
		CHANGEFEED_RUNS=$(or $(RUNS),20) CHANGEFEED_SEED=$(or $(SEED),0) \
		$(BIN)/python -m pytest -s -n 0 tests/faults/test_random_snapshot.py tests/faults/long_snapshot.py $(ARGS)

test-replicate: $(READY) ## 20 random runs of a follower with random kills, for each pair of servers (ARGS="-k mysql"; RUNS=100 SEED=7)
	CHANGEFEED_RUNS=$(or $(RUNS),20) CHANGEFEED_SEED=$(or $(SEED),0) \
		$(BIN)/python -m pytest -s -n 0 tests/integration/replicate/test_follower_random.py $(ARGS)

test-fuzz: $(READY) ## Damaged binlogs, with bounds checks (CASES=100000 SEED=seed are the defaults)
	CHANGEFEED_FUZZ_CASES=$(or $(CASES),100000) CHANGEFEED_FUZZ_SEED=$(or $(SEED),seed) \
		$(BIN)/python -m pytest -n 0 tests/integration/binlog/test_decode_fuzz.py $(ARGS)

test-huge-file: $(READY) ## A binlog file of more than 4 GiB, whose positions do not fit into four bytes
	$(BIN)/python -m pytest tests/integration/huge_file.py $(ARGS)

test-foreign: $(READY) ## MySQL's and MariaDB's own test files: their schemas and rows must be rebuilt (ARGS="--server mariadb 'main/type*.test'": only some; --follower: by a follower)
	PYTHONPATH=$(PYTHONPATH):$(CURDIR)/tests $(BIN)/python -m foreign $(ARGS)

test-consumers: $(READY) ## Third-party consumers (JDBC sinks, Connect transforms, Flink, Spark, Avro): each must end with the source's rows
	$(BIN)/python -m devstack fetch --consumers
	$(BIN)/python -m pytest -n 0 --timeout 900 tests/consumers/test_consumers.py tests/consumers/long_consumers.py $(ARGS)

test-ranges: $(READY) ## Tests with the oldest and the newest dependencies that pyproject.toml allows
	for end in lowest-direct highest; do \
		$(BIN)/uv venv --quiet --clear --python $(PYTHON) .devstack/ranges-venv && \
		$(BIN)/uv pip install --quiet --python .devstack/ranges-venv/bin/python --resolution $$end \
			--editable '.[airflow,spark]' && \
		$(BIN)/uv pip install --quiet --python .devstack/ranges-venv/bin/python \
			"$$(grep -oE '^pytest==[0-9.]+' requirements.txt)" pytest-timeout pytest-xdist hypothesis httpx psutil selenium && \
		CHANGEFEED_KERNEL_CACHE=$(CURDIR)/.devstack/ranges-venv/kernel-cache PATH=$(CURDIR)/.devstack/ranges-venv/bin:$$PATH \
			.devstack/ranges-venv/bin/python -m pytest $(RANGES) $(ARGS) || exit 1; \
	done

bench-decode: $(READY) ## Decoding in rows/s: against mysql-replication on one core; Spark local[2] against local[1]
	$(BIN)/python tests/bench/bench_decode.py $(ARGS)

bench-formats: $(READY) ## Decoding in rows/s on one core: each format, and headers, masks, conditions and functions
	$(BIN)/python tests/bench/bench_formats.py $(ARGS)

bench-select: $(READY) ## Messages of the rows of a SELECT, against mysqldump
	$(BIN)/python tests/bench/bench_select.py $(ARGS)

bench-snapshot: $(READY) ## A snapshot of a million rows, against mysqldump and Debezium (ARGS="--rounds 1 --no-debezium")
	$(BIN)/python tests/bench/bench_snapshot.py $(ARGS)

bench-replicate: $(READY) ## A follower in row changes/s, against mysqlbinlog | mysql
	$(BIN)/python tests/bench/bench_replicate.py $(ARGS)

bench-end-to-end: $(READY) ## From a live server into Kafka: rows/s, CPU of client and broker, seconds by phase (ARGS="bulk --rounds 1": only bulk)
	$(BIN)/python tests/bench/bench_end_to_end.py $(ARGS)

bench-overhead: $(READY) ## A window of ten rows from plan to checkpoint, against spark-submit of an empty script
	$(BIN)/python tests/bench/bench_overhead.py $(ARGS)

bench-commands: $(READY) ## CPU seconds of commands that start no Spark: status, lag, an idle run
	$(BIN)/python tests/bench/bench_commands.py $(ARGS)

bench-freshness: $(READY) ## Seconds from a commit to a read_committed consumer: a continuous run, and Debezium (ARGS="--seconds 30 --rates 1 100")
	$(BIN)/python tests/bench/bench_freshness.py $(ARGS)

bench-commit-log: $(READY) ## What readers of a commit log read after many windows, with the broker's settings and with ours (ARGS="--windows 20000")
	$(BIN)/python tests/bench/bench_commit_log.py $(ARGS)

bench-pipelines: $(READY) ## CPU seconds of a run, and lag, of many pipelines in Airflow: idle, and ten rows each minute (PIPELINES=50 MINUTES=5)
	$(BIN)/python tests/bench/bench_pipelines.py --pipelines $(or $(PIPELINES),50) --minutes $(or $(MINUTES),5) $(ARGS)

bench-list: $(READY) ## The list of 200 pipelines: its REST answer, the page in Chromium, CPU seconds of the API server (PIPELINES=200)
	$(BIN)/python tests/bench/bench_list.py --pipelines $(or $(PIPELINES),200) $(ARGS)

bench-scale: $(READY) ## Thousands of tables, large GTID sets, hundreds of files, large rows: seconds by phase, and memory
	$(BIN)/python tests/bench/bench_scale.py $(ARGS)

audit: $(READY) ## Known vulnerabilities of the packages in requirements.lock, by pip-audit from pypi.org (ARGS="-s osv": from api.osv.dev); not part of `make test`
	@test -n "$(findstring -s ,$(ARGS))" || $(BIN)/python -c \
		'import urllib.request; urllib.request.urlopen("https://pypi.org/pypi/pip/25.0/json", timeout=30)' 2>/dev/null || { \
		echo "Expected pypi.org's list of vulnerabilities (/pypi/NAME/VERSION/json), found none: a package proxy does not" \
			"have it. Nothing was audited. Run this with access to pypi.org, or, with access to api.osv.dev:" \
			"make audit ARGS='-s osv'" >&2; exit 1; }
	$(BIN)/uv tool run --quiet --isolated --from pip-audit==2.10.1 pip-audit --requirement requirements.lock \
		--require-hashes --disable-pip --strict --progress-spinner off $(ARGS)

lock: $(READY) ## Resolve requirements.txt into requirements.lock, and its first part, without tests, into requirements-demo.lock and requirements-spark.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-emit-find-links --no-annotate --no-header requirements.txt -o requirements.lock
	sed '/^# --- development and tests/,$$d' requirements.txt | $(BIN)/uv pip compile --quiet --universal \
		--python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
		--constraint requirements.lock --no-emit-package pyspark --no-emit-package pyspark-client - -o requirements-demo.lock
	grep -E '^pyspark(-client)?==' requirements.txt | $(BIN)/uv pip compile --quiet --universal --no-deps \
		--python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
		- -o requirements-spark.lock
