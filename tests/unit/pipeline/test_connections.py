"""A pipeline's connections: looked up when they are needed, and pickled completely for a worker."""

from __future__ import annotations

import pickle
import socket

import pytest

from changefeed.errors import SettingsError, SourceUnavailableError
from changefeed.model.connection import AnswerLimits, from_environment
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings

SECRET = "hush-71c2"
PIPELINE = Pipeline(name="shop", source=SourceSettings(connection="source"), kafka=KafkaSettings(connection="cluster"))
URIS = {
    "source": f"mysql://me:{SECRET}@db.example",
    "cluster": f"kafka://broker:9092/?sasl.username=me&sasl.password={SECRET}",
}


def test_a_connection_is_looked_up_when_it_is_needed() -> None:
    connections = PipelineConnections(PIPELINE, {"source": URIS["source"]}.__getitem__)
    assert connections.mysql.host == "db.example"
    with pytest.raises(KeyError, match="cluster"):
        _ = connections.kafka


def test_a_worker_gets_both_connections_and_looks_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, uri in URIS.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", uri)
    sent = pickle.dumps(PipelineConnections(PIPELINE, from_environment))
    for name in URIS:
        monkeypatch.delenv(f"AIRFLOW_CONN_{name.upper()}")
    arrived: PipelineConnections = pickle.loads(sent)
    assert arrived.mysql.password == SECRET
    assert arrived.commit_log().connection.options["sasl.password"] == SECRET
    assert arrived.pipeline == PIPELINE
    with pytest.raises(SettingsError, match="state"):
        arrived.lookup("state")


def test_a_worker_gets_the_login_of_a_schema_registry_which_shows_nowhere() -> None:
    avro = Pipeline.model_validate({**PIPELINE.model_dump(), "format": {"name": "avro", "registry": "schemas"}})
    connections = PipelineConnections(avro, {**URIS, "schemas": f"http://me:{SECRET}@registry:8081"}.__getitem__)
    arrived: PipelineConnections = pickle.loads(pickle.dumps(connections))
    assert arrived.registry is not None
    assert arrived.registry.connection.password == SECRET
    assert SECRET not in f"{arrived.registry!r} {arrived.registry.connection} {arrived.schema_ids({})!r}"
    assert SECRET not in f"{connections!r}"
    assert PipelineConnections(PIPELINE, URIS.__getitem__).schema_ids({}) is None


def test_no_password_shows_in_a_repr() -> None:
    connections = PipelineConnections(PIPELINE, URIS.__getitem__)
    assert SECRET not in f"{connections} {connections.mysql} {connections.kafka!r} {connections!r}"


def test_the_logs_of_a_pipeline_are_of_its_name_and_a_backfill_has_its_own() -> None:
    connections = PipelineConnections(PIPELINE, URIS.__getitem__)
    log, own = connections.commit_log(), connections.commit_log("shop.backfill.1")
    assert (log.topic, log.identity) == (own.topic, "shop")
    assert own.identity == "shop.backfill.1"
    assert connections.schema_log().identity == "shop"


@pytest.mark.parametrize(("connection", "uri"), [("source", f"postgres://me:{SECRET}@db"), ("cluster", "broker:9092")])
def test_wrong_uri_error_names_the_connection_without_the_password(connection: str, uri: str) -> None:
    connections = PipelineConnections(PIPELINE, {**URIS, connection: uri}.__getitem__)
    with pytest.raises(
        SettingsError, match=f"^connection '{connection}': expected a connection of the form"
    ) as refused:
        _ = connections.mysql, connections.kafka
    assert SECRET not in str(refused.value)


def test_silent_server_is_an_error_after_the_connect_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uris = {"source": f"mysql://me:{SECRET}@127.0.0.1:{silent.getsockname()[1]}"}
        connections = PipelineConnections(
            PIPELINE, uris.__getitem__, AnswerLimits(connect_seconds=1, answer_seconds=3600)
        )
        with pytest.raises(SourceUnavailableError, match="timed out"), connections.session():
            pass
