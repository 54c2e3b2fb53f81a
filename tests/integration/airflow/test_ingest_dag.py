"""The ingest DAG on real servers: MySQL, Spark, Kafka, and the checkpoint in an Airflow Variable."""

from __future__ import annotations

import base64
import itertools
import json
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow_database import create_database
from airflow_receivers import (
    LineageFile,
    OtlpReceiver,
    Receiver,
    Sample,
    StatsdReceiver,
    otlp_receiver,
    statsd_receiver,
)
from integration.dag_runner import DagRunner
from integration.topic_rows import event_ids, records_of, select_rows, topic_rows, topics_of

from changefeed.airflow.end_watch import LOOK_SECONDS
from changefeed.airflow.ingest_dag import ingest_dag_id
from changefeed.model.topic_name import commit_log_topic, schema_changes_topic
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.spark_connect import SparkConnectServer

TABLES = ("orders", "items", "stock")
IN_FULL = {"plan": "success", "ingest": "success", "commit": "success"}
SKIPPED = {"plan": "success", "ingest": "skipped", "commit": "skipped"}

pytestmark = pytest.mark.timeout(1200)


@dataclass
class Feed:
    """A pipeline whose DAG runs in another process."""

    name: str
    database: str
    mysql: MysqlServer
    kafka: KafkaBroker
    env: dict[str, str]
    yaml: Path
    runner: DagRunner

    def restart(self) -> None:
        """Start the DAG's process anew, with the present `env`."""
        self.runner.stop()
        self.runner = DagRunner(f"changefeed_ingest__{self.name}", self.env, self.runner.log)

    def do(self, what: str) -> dict[str, str]:
        """Run the DAG (`run`) or repeat a task (`again TASK`).

        Returns the states of the tasks, of which none may fail.
        """
        result = self.runner.states_after(what)
        if "failed" in result.values():
            pytest.fail(f"{what}: {result}\n{self.runner.text()[-8000:]}")
        return result

    def use(self, spark: str) -> None:
        """Replace the pipeline's `spark` section."""
        self.yaml.write_text(self.yaml.read_text().partition("spark: ")[0] + f"spark: {spark}\n")

    def topic(self, table: str) -> str:
        return f"{self.database}.{table}"

    def records(self, table: str) -> list[Any]:
        return records_of(self.kafka.bootstrap, self.topic(table))

    def all_ids(self) -> list[str]:
        return [event for table in TABLES for event in event_ids(self.records(table))]

    def checkpoint(self) -> dict[str, Any]:
        with sqlite3.connect(f"file:{self.env['AIRFLOW_HOME']}/airflow.db?mode=ro", uri=True) as database:
            key = f"changefeed_checkpoint__{self.name}"
            (value, encrypted) = database.execute(
                "SELECT val, is_encrypted FROM variable WHERE key = ?", [key]
            ).fetchone()
        assert not encrypted
        result: dict[str, Any] = json.loads(value)
        return result

    def frozen(self) -> dict[str, Any]:
        """The window of the last run, from its seal in the commit log."""
        seals = {
            json.loads(record.key)[2]: json.loads(record.value)
            for record in records_of(self.kafka.bootstrap, commit_log_topic(self.name))
            if json.loads(record.key)[1] == "seal"
        }
        window: dict[str, Any] = seals[max(seals)]["window"]
        return window

    def head(self) -> str:
        ((file, position, *_),) = self.mysql.execute("SHOW BINARY LOG STATUS")
        return f"{file}:{position}"


@pytest.fixture
def spark(request: pytest.FixtureRequest) -> str:
    """The `spark` section of the pipeline's YAML."""
    return str(getattr(request, "param", "{conf: {spark.driver.bindAddress: 127.0.0.1, spark.driver.host: 127.0.0.1}}"))


@pytest.fixture
def statsd() -> Iterator[StatsdReceiver]:
    with statsd_receiver() as receiver:
        yield receiver


@pytest.fixture
def otlp() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


@pytest.fixture
def lineage(tmp_path: Path) -> LineageFile:
    return LineageFile(tmp_path / "lineage.json")


@pytest.fixture
def receivers(request: pytest.FixtureRequest) -> list[Receiver]:
    """The receivers, by the names of their fixtures, to which the DAG's Airflow reports."""
    return [request.getfixturevalue(name) for name in getattr(request, "param", ())]


@pytest.fixture
def feed(
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
    unique_name: str,
    database: str,
    server_id: int,
    spark: str,
    receivers: list[Receiver],
) -> Iterator[Feed]:
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    (pipelines / "feed.yaml").write_text(f"""
name: {unique_name}
source: {{connection: mysql_{unique_name}, server_ids: {server_id}-{server_id + 9}}}
kafka: {{connection: kafka_{unique_name}}}
tables: {{include: ['{database}.*'], exclude: ['*.secret_*']}}
topics: {{partitions: 2}}
start: latest
schedule: null
retries: 0
format: {{name: debezium, decimal.handling.mode: string}}
spark: {spark}
""")
    settings = {
        "CHANGEFEED_PIPELINES": str(pipelines),
        f"AIRFLOW_CONN_MYSQL_{unique_name.upper()}": mysql_server.url,
        f"AIRFLOW_CONN_KAFKA_{unique_name.upper()}": f"kafka://{kafka_broker.bootstrap}",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
    }
    for receiver in receivers:
        settings |= receiver.airflow_settings
    env = create_database(tmp_path / "airflow", settings)
    runner = DagRunner(f"changefeed_ingest__{unique_name}", env, tmp_path / "dag.log")
    result = Feed(unique_name, database, mysql_server, kafka_broker, env, pipelines / "feed.yaml", runner)
    yield result
    result.runner.stop()


def test_published_records_rebuild_the_source(feed: Feed, spark_connect: SparkConnectServer) -> None:
    server, database = feed.mysql, feed.database

    assert feed.do("run") == SKIPPED, "a pipeline that starts at the latest has nothing to publish yet"
    first = feed.checkpoint()
    assert (first["window"], first["coordinates"]) == (0, feed.head())

    # The first window: inserts, updates, deletes and changes of key, and a rotation in the middle.
    server.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(40), total DECIMAL(10,2))",
        "CREATE TABLE items (order_id INT, line SMALLINT, sku CHAR(8), PRIMARY KEY (order_id, line))",
        "CREATE TABLE stock (sku CHAR(8) PRIMARY KEY, pieces INT, note TEXT)",
        "CREATE TABLE secret_cards (id INT PRIMARY KEY, number VARCHAR(20))",
        "INSERT INTO orders VALUES (1, 'Zoë', 10.50), (2, 'Iñaki', 20.00), (3, '', 0), (4, NULL, NULL)",
        "INSERT INTO items VALUES (1, 1, 'a'), (1, 2, 'b'), (2, 1, 'a')",
        "INSERT INTO stock VALUES ('a', 10, 'first'), ('b', 20, NULL), ('c', 30, '😀')",
        "INSERT INTO secret_cards VALUES (1, '4111111111111111')",
        "UPDATE orders SET total = total + 1 WHERE id < 3",
        "FLUSH BINARY LOGS",
        "UPDATE stock SET sku = 'z' WHERE sku = 'c'",
        "BEGIN",
        "DELETE FROM orders WHERE id = 3",
        "UPDATE items SET order_id = 4 WHERE order_id = 2",
        "UPDATE stock SET pieces = pieces - 1",
        "COMMIT",
        "BEGIN",
        "INSERT INTO orders VALUES (99, 'rolled back', 1)",
        "ROLLBACK",
        database=database,
    )
    assert feed.do("run") == IN_FULL
    second = feed.checkpoint()
    assert (second["window"], second["coordinates"]) == (1, feed.head())
    window = feed.frozen()
    assert (window["start"], window["head"]) == (first["coordinates"], second["coordinates"])
    assert window["start"].partition(":")[0] != window["head"].partition(":")[0], "the window spans a rotation"
    for table in TABLES:
        assert topic_rows(feed.records(table)) == select_rows(server, database, table), table

    assert topics_of(feed.kafka.bootstrap, f"{database}.") == {feed.topic(table) for table in TABLES}

    # A retry of ingest with the same window.
    before = feed.all_ids()
    assert feed.do("again ingest") == IN_FULL
    assert feed.all_ids() == before
    assert feed.checkpoint() == second

    # The second window. From here on, runs use Spark Connect, as spark-submit is already tested.
    feed.use(f"{{connect: '{spark_connect.url}'}}")
    server.execute(
        "INSERT INTO orders VALUES (3, 'again', 3.33), (5, 'new', 5)",
        "DELETE FROM stock WHERE sku = 'b'",
        "REPLACE INTO items VALUES (1, 1, 'y'), (9, 1, 'n')",
        "UPDATE orders SET id = 50 WHERE id = 5",
        "UPDATE orders SET customer = 'back' WHERE id = 50",
        database=database,
    )
    assert feed.do("run") == IN_FULL
    third = feed.checkpoint()
    assert (third["window"], third["coordinates"]) == (2, feed.head())
    for table in TABLES:
        assert topic_rows(feed.records(table)) == select_rows(server, database, table), table
    published = feed.all_ids()
    assert len(published) == len(set(published)), "no event twice"

    # Nothing new: ingest and commit are skipped.
    assert feed.do("run") == SKIPPED
    assert feed.all_ids() == published
    assert feed.checkpoint() == third

    # Only an excluded table changes: nothing is published, and the checkpoint moves.
    server.execute("INSERT INTO secret_cards VALUES (2, '5500000000000004')", database=database)
    assert feed.do("run") == IN_FULL
    last = feed.checkpoint()
    assert (last["window"], last["coordinates"]) == (3, feed.head())
    assert feed.all_ids() == published

    _no_secret(feed)


def _no_secret(feed: Feed) -> None:
    """Check that neither the password nor excluded rows are in Airflow's database, its logs or the DAG's output."""
    password = feed.mysql.url.split(":")[2].rpartition("@")[0].encode()
    home = Path(feed.env["AIRFLOW_HOME"])
    for path in (feed.runner.log, *(path for path in home.rglob("*") if path.is_file())):
        text = path.read_bytes()
        assert password not in text, f"the password is in {path}"
        assert b"4111111111111111" not in text, f"rows are in {path}"


TOPICS, CHANGED_TOPICS = "{partitions: 2}", "{partitions: 2, template: '{database}.later-{table}'}"


def events_of(feed: Feed) -> Counter[str]:
    """The rows of the asset events, by topic."""
    with sqlite3.connect(f"{feed.env['AIRFLOW_HOME']}/airflow.db") as database:
        extras = [json.loads(extra) for (extra,) in database.execute("SELECT extra FROM asset_event")]
    rows = Counter[str]()
    for extra in extras:
        rows[extra["topic"]] += extra["rows"]
    return rows


@pytest.mark.extended
def test_a_continuous_run_publishes_and_commits_changes_while_it_goes_on(feed: Feed) -> None:
    """With `windows` one task publishes and commits what changes while it runs, as its YAML says then."""
    server, database = feed.mysql, feed.database
    feed.yaml.write_text(feed.yaml.read_text() + "windows: {every: 500ms, run_for: 45s}\n")
    server.execute("CREATE TABLE orders (id INT PRIMARY KEY)", "INSERT INTO orders VALUES (0)", database=database)
    feed.yaml.write_text(feed.yaml.read_text().replace("start: latest", "start: earliest"))
    stop = threading.Event()
    topics = {False: f"{database}.orders", True: f"{database}.later-orders"}

    def write() -> None:
        is_changed = False
        for number in itertools.count(1):
            if stop.wait(1):
                return
            server.execute(f"INSERT INTO orders VALUES ({number})", database=database)
            if not is_changed and topics_of(feed.kafka.bootstrap, topics[False]):
                feed.yaml.write_text(feed.yaml.read_text().replace(TOPICS, CHANGED_TOPICS))
                is_changed = True

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert feed.do("run") == IN_FULL
    finally:
        stop.set()
        writer.join()
    numbers = seals_of(feed)
    assert len(numbers) > 1, "one task published several windows"
    assert feed.checkpoint()["window"] == max(numbers)
    before, after = ({*event_ids(records_of(feed.kafka.bootstrap, topic))} for topic in topics.values())
    assert before, "rows under the settings that the job began with"
    assert after, "rows under those that it found"
    events = events_of(feed)
    assert events[topics[False]] == len(before)
    assert events[topics[True]] == len(after)

    feed.yaml.write_text(feed.yaml.read_text().partition("windows: ")[0])
    assert feed.do("run") == IN_FULL, "a run with one window goes on after the continuous one"
    records = [record for topic in topics.values() for record in records_of(feed.kafka.bootstrap, topic)]
    assert topic_rows(records) == select_rows(server, database, "orders")
    assert len(event_ids(records)) == len({*event_ids(records)})


def window_events(feed: Feed) -> list[dict[str, Any]]:
    """The extras of the asset events in Airflow's database, in order."""
    with sqlite3.connect(f"file:{feed.env['AIRFLOW_HOME']}/airflow.db?mode=ro", uri=True) as database:
        return [json.loads(extra) for (extra,) in database.execute("SELECT extra FROM asset_event ORDER BY id")]


def set_paused(feed: Feed, *, is_paused: bool) -> None:
    """Pause or resume the DAG, as Airflow's page does."""
    with sqlite3.connect(f"{feed.env['AIRFLOW_HOME']}/airflow.db", timeout=30) as database:
        database.execute("UPDATE dag SET is_paused = ? WHERE dag_id = ?", (is_paused, ingest_dag_id(feed.name)))


def kill_job(feed: Feed) -> None:
    """Kill the processes of the pipeline's job."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            arguments = process.cmdline()
            if feed.name in arguments and any(each.endswith("jobs/ingest.py") for each in arguments):
                process.kill()


@pytest.mark.extended
def test_windows_of_a_continuous_run_that_failed_have_asset_events_of_the_next_run(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    """Airflow sends no event of a task that fails, although the windows that it committed stay committed. The next run
    is ended by a pause."""
    server, database = feed.mysql, feed.database
    feed.use(f"{{connect: '{spark_connect.url}'}}")
    text = feed.yaml.read_text().replace("start: latest", "start: earliest")
    feed.yaml.write_text(text + "windows: {every: 500ms, run_for: 10m}\n")
    server.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY)",
        "CREATE TABLE items (id INT PRIMARY KEY)",
        "INSERT INTO orders VALUES (0)",
        database=database,
    )

    def published(table: str = "orders") -> int:
        return len(feed.records(table)) if topics_of(feed.kafka.bootstrap, feed.topic(table)) else 0

    def wait_until(is_over: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 240
        while not is_over():
            assert time.monotonic() < deadline, feed.runner.text()[-4000:]
            time.sleep(0.2)

    feed.runner.begin("run")
    for number in (1, 2):
        wait_until(lambda number=number: published() == number)  # type: ignore[misc]
        server.execute(f"INSERT INTO orders VALUES ({number})", database=database)
    wait_until(lambda: published() == 3)
    wait_until(lambda: feed.checkpoint()["window"] == max(seals_of(feed)) == 3)
    kill_job(feed)
    assert feed.runner.read_states()["ingest"] == "failed"
    assert window_events(feed) == []

    server.execute("INSERT INTO items VALUES (1), (2)", database=database)
    feed.runner.begin("run")
    wait_until(lambda: published("items") == 2)
    time.sleep(2 * LOOK_SECONDS)  # so that the task sees the DAG before the pause
    set_paused(feed, is_paused=True)
    assert feed.runner.read_states() == IN_FULL
    assert "the run was asked to end" in feed.runner.text()
    set_paused(feed, is_paused=False)
    feed.yaml.write_text(feed.yaml.read_text().replace("run_for: 10m", "run_for: 10s"))
    events = {event["topic"]: event for event in window_events(feed)}
    orders, items = events[feed.topic("orders")], events[feed.topic("items")]
    assert len(window_events(feed)) == 2, "an event for each topic"
    assert (orders["rows"], orders["windows"]) == (3, [1, 2, 3])
    assert (items["rows"], items["windows"]) == (2, [orders["last_window"]])
    assert feed.do("again ingest")["ingest"] == "success"
    assert len(window_events(feed)) == 2, "a task that is cleared sends no event again"


def seals_of(feed: Feed) -> list[int]:
    """The numbers of the sealed windows in the commit log."""
    records = records_of(feed.kafka.bootstrap, commit_log_topic(feed.name))
    return [json.loads(record.key)[2] for record in records if b'"seal"' in record.key and record.value]


@pytest.mark.extended
def test_unreadable_checkpoint_variable_fails_the_run(feed: Feed) -> None:
    """Airflow reports an unreadable Variable as missing; with `start: latest` the pipeline would skip changes."""
    assert feed.do("run") == SKIPPED
    feed.mysql.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY)", "INSERT INTO orders VALUES (1)", database=feed.database
    )
    key = f"changefeed_checkpoint__{feed.name}"
    with sqlite3.connect(f"{feed.env['AIRFLOW_HOME']}/airflow.db") as database:
        database.execute("UPDATE variable SET val = 'of another key', is_encrypted = 1 WHERE key = ?", [key])
    feed.env["AIRFLOW__CORE__FERNET_KEY"] = base64.urlsafe_b64encode(bytes(32)).decode()
    feed.restart()
    assert feed.runner.states_after("run")["plan"] == "failed"
    assert f"Airflow has Variable '{key}' and does not give it" in " ".join(feed.runner.text().split())
    with sqlite3.connect(f"{feed.env['AIRFLOW_HOME']}/airflow.db") as database:
        assert database.execute("SELECT val FROM variable WHERE key = ?", [key]).fetchone() == ("of another key",)


def publish_orders(feed: Feed, spark: SparkConnectServer) -> None:
    """Run the DAG three times: at the start of a pipeline, with three rows of two tables, and without changes."""
    feed.use(f"{{connect: '{spark.url}'}}")
    assert feed.do("run") == SKIPPED
    feed.mysql.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(40))",
        "CREATE TABLE items (id INT PRIMARY KEY)",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b')",
        "UPDATE orders SET customer = 'c' WHERE id = 2",
        "INSERT INTO items VALUES (1)",
        database=feed.database,
    )
    assert feed.do("run") == IN_FULL
    assert feed.do("run") == SKIPPED


def check_samples(feed: Feed, samples: list[Sample], prefix: str) -> None:
    """Check names, tags and values of the metrics of `publish_orders`."""
    ours = [sample for sample in samples if sample.name.startswith(f"{prefix}changefeed.")]
    assert {sample.tags["pipeline"] for sample in ours} == {feed.name}
    by_name: dict[str, list[Sample]] = {}
    for sample in ours:
        by_name.setdefault(sample.name.removeprefix(f"{prefix}changefeed."), []).append(sample)
    assert by_name.keys() >= {"lag_bytes", "lag_seconds", "windows", "bytes", "rows", "window_seconds"}
    rows = {(each.tags["table"].partition(".")[2], each.tags["op"]): each.value for each in by_name["rows"]}
    assert rows == {("orders", "c"): 2, ("orders", "u"): 1, ("items", "c"): 1}
    assert [sample.value for sample in by_name["windows"]] == [1]
    (size,) = by_name["bytes"]
    assert size.value > 0
    assert by_name["lag_bytes"][-1].value == 0
    assert {sample.tags["phase"] for sample in by_name["window_seconds"]} >= {"prepare", "ingest", "commit"}


@pytest.mark.extended
@pytest.mark.parametrize("receivers", [("statsd", "lineage")], indirect=True)
def test_statsd_gets_metrics_and_openlineage_the_datasets_of_a_run(
    feed: Feed,
    spark_connect: SparkConnectServer,
    statsd: StatsdReceiver,
    lineage: LineageFile,
    mysql_follower: MysqlServer,
) -> None:
    publish_orders(feed, spark_connect)
    check_samples(feed, statsd.samples(), "airflow.")

    commits = lineage.events(f"changefeed_ingest__{feed.name}.commit")
    (complete,) = [event for event in commits if event["eventType"] == "COMPLETE"]
    source = feed.mysql.url.rpartition("@")[2].rstrip("/")
    inputs = {each["name"]: each for each in complete["inputs"]}
    outputs = {each["name"]: each for each in complete["outputs"]}
    assert {each["namespace"] for each in inputs.values()} == {f"mysql://{source}"}
    assert {each["namespace"] for each in outputs.values()} == {f"kafka://{feed.kafka.bootstrap}"}
    counts = {name: each["inputFacets"]["inputStatistics"]["rowCount"] for name, each in inputs.items()}
    assert counts == {feed.topic("orders"): 3, feed.topic("items"): 1}
    counts = {name: each["outputFacets"]["outputStatistics"]["rowCount"] for name, each in outputs.items()}
    assert counts.keys() - {schema_changes_topic(feed.name)} == {feed.topic("orders"), feed.topic("items")}
    assert counts == {topic: len(records_of(feed.kafka.bootstrap, topic)) for topic in counts}
    columns = {each["name"]: each["type"] for each in inputs[feed.topic("orders")]["facets"]["schema"]["fields"]}
    assert columns == {"id": "int", "customer": "varchar"}
    origins = outputs[feed.topic("orders")]["facets"]["columnLineage"]["fields"]
    assert origins["customer"]["inputFields"][0]["field"] == "customer"
    check_lineage_of_other_dags(feed, lineage, mysql_follower)
    _no_secret(feed)
    for server in (feed.mysql, mysql_follower):
        assert server.url.split(":")[2].rpartition("@")[0] not in lineage.path.read_text()


FRAGILE = """
from pathlib import Path

def transform(change, marker):
    if Path(marker).exists():
        raise ValueError("the marker exists")
    return change
"""


def check_lineage_of_other_dags(feed: Feed, lineage: LineageFile, follower: MysqlServer) -> None:
    """Run the other DAGs that move or compare rows after `publish_orders`, and check their datasets."""
    name, database, folder = feed.name, feed.database, feed.yaml.parent.parent
    copy, marker = f"copy_{name}", folder / "marker"
    marker.touch()
    (folder / "transforms").mkdir()
    (folder / "transforms" / "fragile.py").write_text(FRAGILE)
    text = feed.yaml.read_text()
    feed.env |= {"CHANGEFEED_TRANSFORMS": str(folder / "transforms"), f"AIRFLOW_CONN_{copy.upper()}": follower.root_url}
    feed.restart()
    first = feed.frozen()["start"].partition(":")[0]

    def datasets(kind: str, task: str, **params: object) -> tuple[dict[str, int], dict[str, int]]:
        """The row counts of inputs and outputs of a run, by the kind of namespace and name."""
        dag = f"changefeed_{kind}__{name}"
        states = feed.runner.states_after(f"of {dag} run {json.dumps(params)}")
        assert set(states.values()) == {"success"}, feed.runner.text()[-8000:]
        (event,) = [each for each in lineage.events(f"{dag}.{task}") if each["eventType"] == "COMPLETE"]
        servers[kind] = {each["namespace"] for each in event["inputs"] + event["outputs"]} - {cluster}
        return (
            {label(each): each["inputFacets"]["inputStatistics"]["rowCount"] for each in event["inputs"]},
            {label(each): each["outputFacets"]["outputStatistics"]["rowCount"] for each in event["outputs"]},
        )

    def label(dataset: dict[str, Any]) -> str:
        return ("topic " if dataset["namespace"] == cluster else "") + dataset["name"].removeprefix(f"{database}.")

    follower.execute(f"CREATE DATABASE `{database}`")  # the pipeline begins after that of the source
    servers: dict[str, set[str]] = {}
    cluster = f"kafka://{feed.kafka.bootstrap}"
    changes, rows = {"orders": 3, "items": 1}, {"orders": 2, "items": 1}
    ddl = f"topic {schema_changes_topic(name)}"

    def topics(counts: dict[str, int], suffix: str = "") -> dict[str, int]:
        return {f"topic {table}{suffix}": count for table, count in counts.items()}

    try:
        values = "values: {decimal: string, temporal: iso, documents: text}"  # as followers require
        followed = text.replace("format: {name: debezium, decimal.handling.mode: string}", values)
        feed.yaml.write_text(f"{followed}followers: [{{connection: {copy}}}]\n")
        read, written = datasets("replicate", f"to_{copy}")
        assert (written, read.pop(ddl)) == (changes, 2)
        assert read == topics(changes)
        read, written = datasets("verify", "result", follower=copy)
        assert (read, written) == (rows | topics(changes), {})
        assert datasets("snapshot", "finish") == (rows, topics(rows))
        read, written = datasets("backfill", "finish", from_file=first, tables=[f"{database}.orders"])
        assert written.pop(f"{ddl}.replay") > 0
        assert (read, written) == ({"orders": 3}, topics({"orders": 3}, ".replay"))
        transforms = f"transforms: [{{tables: {database}.stock, function: fragile, arguments: {{marker: {marker}}}}}]\n"
        feed.yaml.write_text(f"{text}on_table_error: park\n{transforms}")
        feed.mysql.execute("CREATE TABLE stock (id INT PRIMARY KEY)", "INSERT INTO stock VALUES (1)", database=database)
        assert feed.do(f"of changefeed_ingest__{name} run") == IN_FULL
        marker.unlink()
        assert datasets("unpark", "finish") == ({"stock": 1}, {"topic stock": 1})
    finally:
        follower.execute(f"DROP DATABASE IF EXISTS `{database}`", "DROP DATABASE IF EXISTS changefeed")
    own, others = ({f"mysql://{server.url.rpartition('@')[2].partition('/')[0]}"} for server in (feed.mysql, follower))
    assert servers == dict.fromkeys(("unpark", "snapshot", "backfill"), own) | dict.fromkeys(
        ("replicate", "verify"), others
    )


@pytest.mark.long
@pytest.mark.extended
@pytest.mark.parametrize("receivers", [("otlp",)], indirect=True)
def test_opentelemetry_gets_the_metrics_of_a_run(
    feed: Feed, spark_connect: SparkConnectServer, otlp: OtlpReceiver
) -> None:
    publish_orders(feed, spark_connect)
    feed.runner.stop()  # a task's process sends its metrics when it ends
    check_samples(feed, otlp.samples(), "airflow.")
