"""Schemas that a subject's compatibility refuses, registered by setting: the level is as before, whatever happens."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from avro_java import JavaAvro
from ruled_registry import RuledRegistry

from changefeed.errors import CompatibilityError, RegistryError
from changefeed.kafka.schema_registry.client import Registry
from changefeed.kafka.schema_registry.connection import RegistryConnection
from changefeed.kafka.schema_registry.exemptions import Exemptions
from devstack.schema_registry import SchemaRegistry

pytestmark = pytest.mark.extended

_DIES = """
import sys
from changefeed.kafka.schema_registry.connection import RegistryConnection
from changefeed.kafka.schema_registry.client import Registry
from changefeed.kafka.schema_registry.exemptions import Exemptions
url, log, subject, schema = sys.argv[1:]
Exemptions(Registry(RegistryConnection.from_uri(url)), log).register(subject, schema)
"""


def schema_with(column: str) -> str:
    """A schema with a field that has no default: none goes with another."""
    return f'{{"type":"record","name":"Row","fields":[{{"name":"{column}","type":"int"}}]}}'


@pytest.fixture(scope="module")
def ruled(schema_registry: SchemaRegistry) -> Iterator[RuledRegistry]:
    with JavaAvro() as java, RuledRegistry(schema_registry.url, java) as running:
        yield running


@pytest.fixture
def registry(ruled: RuledRegistry) -> Registry:
    return Registry(RegistryConnection.from_uri(ruled.url))


@pytest.fixture
def exemptions(registry: Registry, unique_name: str) -> Exemptions:
    return Exemptions(registry, f"changefeed.{unique_name}.compatibility")


@pytest.mark.parametrize("level", [None, "FULL", "BACKWARD_TRANSITIVE"])
def test_schemas_registered_at_once_leave_the_level_as_it_was(
    registry: Registry, exemptions: Exemptions, unique_name: str, level: str | None
) -> None:
    registry.register(unique_name, schema_with("first"))
    if level is not None:
        registry.set_level(unique_name, level)
    expected = {schema_with(f"c{number}") for number in range(4)}
    for schema in expected:
        with pytest.raises(CompatibilityError):
            registry.register(unique_name, schema)
    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(lambda schema: exemptions.register(unique_name, schema), [*expected, *expected]))
    assert len(set(ids)) == 4
    assert set(registry.schemas(unique_name, latest=False)) == {schema_with("first"), *expected}
    assert registry.own_level(unique_name) == level
    assert exemptions._open_entries() == []
    with pytest.raises(CompatibilityError):
        registry.register(unique_name, schema_with("last"))


@pytest.mark.parametrize("level", [None, "FULL"])
@pytest.mark.parametrize("moment", ["before NONE", "before the schema", "before the level is back", "before closing"])
def test_level_is_put_back_by_the_next_run_after_kill(
    ruled: RuledRegistry, registry: Registry, exemptions: Exemptions, unique_name: str, level: str | None, moment: str
) -> None:
    registry.register(unique_name, schema_with("first"))
    if level is not None:
        registry.set_level(unique_name, level)
    config = f"/config/{unique_name}"
    level_back = ("DELETE", config) if level is None else ("PUT", config)
    versions = f"/subjects/{unique_name}/versions"
    steps = [("PUT", config), ("POST", versions), level_back, ("POST", f"/subjects/{exemptions.log}/versions")]
    at = ["before NONE", "before the schema", "before the level is back", "before closing"].index(moment)
    reached, goes_on = threading.Event(), threading.Event()

    def hold(method: str, path: str) -> None:
        if passed and (method, path) == passed[0]:
            passed.pop(0)
            if not passed:
                reached.set()
                goes_on.wait(240)
                raise ConnectionAbortedError  # what the dead process asked for is not done

    passed = steps[: at + 1]
    command = [sys.executable, "-c", _DIES, ruled.url, exemptions.log, unique_name, schema_with("second")]
    ruled.before = hold
    dying = subprocess.Popen(command)
    try:
        assert reached.wait(240)
        dying.send_signal(signal.SIGKILL)
        assert dying.wait() == -signal.SIGKILL
    finally:
        goes_on.set()
        ruled.before = lambda _method, _path: None
        dying.kill()
    assert registry.own_level(unique_name) == (level if moment in ("before NONE", "before closing") else "NONE")
    exemptions.restore_levels(wait_seconds=0)
    assert registry.own_level(unique_name) == level
    assert exemptions._open_entries() == []
    assert exemptions.register(unique_name, schema_with("third")) > 0
    assert registry.own_level(unique_name) == level


def test_level_that_the_account_may_not_change_is_a_clear_error(
    ruled: RuledRegistry, registry: Registry, exemptions: Exemptions, unique_name: str
) -> None:
    registry.register(unique_name, schema_with("first"))
    ruled.read_only.add(unique_name)
    with pytest.raises(CompatibilityError, match=r"on_incompatible: register.*403.*PUT and DELETE") as caught:
        exemptions.register(unique_name, schema_with("second"))
    assert f"/config/{unique_name}" in str(caught.value)
    assert exemptions._open_entries() == []
    ruled.read_only.clear()
    assert registry.own_level(unique_name) is None


def test_level_that_cannot_be_put_back_is_named_until_somebody_does(
    ruled: RuledRegistry, registry: Registry, exemptions: Exemptions, unique_name: str
) -> None:
    registry.register(unique_name, schema_with("first"))
    taken_away = threading.Event()

    def take_away(method: str, path: str) -> None:
        if (method, path) == ("POST", f"/subjects/{unique_name}/versions"):
            ruled.read_only.add(unique_name)
            taken_away.set()

    ruled.before = take_away
    with pytest.raises(RegistryError, match=rf"'{unique_name}'.*is NONE.*by hand \(DELETE /config/{unique_name}\)"):
        exemptions.register(unique_name, schema_with("second"))
    ruled.before = lambda _method, _path: None
    assert taken_away.is_set()
    with pytest.raises(RegistryError, match="cannot be put back"):
        exemptions.restore_levels(wait_seconds=0)
    ruled.read_only.clear()
    registry.delete_level(unique_name)
    exemptions.restore_levels(wait_seconds=0)
    assert exemptions._open_entries() == []
