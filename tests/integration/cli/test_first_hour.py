"""First use of the command: with its Airflow, with another Airflow, and without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow_database import create_database
from integration.command import NOTHING_NEW, WRONG_PASSWORD, Command

from devstack.port import free_port

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]


@pytest.fixture
def in_variables(changefeed: Command, tmp_path: Path) -> Command:
    """The README's pipeline, with its checkpoint in an Airflow Variable, without an Airflow."""
    path = changefeed.pipelines / f"{changefeed.name}.yaml"
    text = path.read_text()
    path.write_text(text.replace("{store: table, connection: state_x}", "{store: variable}"))
    nobodys = tmp_path / "home"
    nobodys.mkdir()
    changefeed.env |= {
        "HOME": str(nobodys),
        "AIRFLOW_HOME": "",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "",
    }
    return changefeed


def on_stdout(command: Command, *arguments: str) -> Any:
    """The JSON that a command with --json prints on stdout; asserts that there is no traceback."""
    outcome = command(*arguments, "--json")
    assert "Traceback" not in outcome.out + outcome.err
    return json.loads(outcome.out)


def test_variable_checkpoint_without_airflow_is_refused(in_variables: Command) -> None:
    command, name = in_variables, in_variables.name
    for spelled in (["plan", name], ["run", name], ["lag", name], ["recover", name]):
        refused = command(*spelled)
        refused.is_refused("SettingsError", "checkpoint.store: variable", "AIRFLOW_HOME", "store: table")
    assert on_stdout(command, "plan", name)["error"].startswith("SettingsError: ")
    (shown,) = on_stdout(command, "status")
    assert (shown["state"], shown["error"].partition(":")[0]) == ("error", "SettingsError")
    assert list(Path(command.env["HOME"]).iterdir()) == []


def test_airflow_without_database_is_reported_not_a_lost_checkpoint(in_variables: Command) -> None:
    command, name = in_variables, in_variables.name
    command.env["AIRFLOW_HOME"] = str(command.folder / "airflow")
    (command.folder / "airflow").mkdir()
    command("plan", name).is_refused("SettingsError", repr(command.env["AIRFLOW_HOME"]), "no airflow.cfg")
    (command.folder / "airflow" / "airflow.cfg").touch()
    refused = command("plan", name)
    refused.is_refused("StateStoreUnavailableError", "no such table: variable", "airflow.db", "AIRFLOW_HOME")
    assert "recover" not in refused.err
    assert on_stdout(command, "plan", name)["error"].startswith("StateStoreUnavailableError: ")


def test_command_reads_airflows_checkpoints_and_reports_a_wrong_fernet_key(
    in_variables: Command,
) -> None:
    command, name = in_variables, in_variables.name
    ours = create_database(command.folder / "airflow")
    command.env |= {variable: value for variable, value in ours.items() if variable.startswith("AIRFLOW")}
    command.env["AIRFLOW__CORE__FERNET_KEY"] = "cFRKM0hQZ2JkTTRfcDJkYlZHeGx1RnRaRXVMYUx0c0Y="
    assert command("run", name).exit_code == NOTHING_NEW
    (shown,) = on_stdout(command, "status")
    assert (shown["state"], shown["window"]) == ("current", 0)
    command.env["AIRFLOW__CORE__FERNET_KEY"] = "YkpZQ0hYbUV4V1FJNDlEeFRkcW9tbWJ2bFR6NGlLUEo="
    command("plan", name).is_refused("CheckpointError", "cannot be decrypted", "AIRFLOW__CORE__FERNET_KEY")


def test_json_option_prints_an_error_as_json_and_on_stderr(changefeed: Command) -> None:
    for arguments in (["plan", "nobody"], ["windows", "nobody"], ["seek", changefeed.name, "latest"]):
        outcome = changefeed(*arguments, "--json")
        outcome.is_refused("SettingsError")
        assert json.loads(outcome.out) == {"error": outcome.err.strip()}


def test_retention_is_a_number_unlimited_or_not_known(spare: Command) -> None:
    spare.begin()

    def headroom() -> tuple[float | None, bool | None]:
        shown = json.loads(spare("lag", spare.name, "--json").out)
        return shown["retention_headroom_seconds"], shown["retention_unlimited"]

    seconds, unlimited = headroom()
    assert (seconds is not None, unlimited) == (True, False)
    spare.server.execute("SET GLOBAL binlog_expire_logs_auto_purge = OFF")
    try:
        assert headroom() == (None, True)
        assert "unlimited: the server purges nothing" in spare("lag", spare.name).out
    finally:
        spare.server.execute("SET GLOBAL binlog_expire_logs_auto_purge = ON")
    spare.connect(mysql=f"mysql://changefeed:{WRONG_PASSWORD}@127.0.0.1:{free_port()}")
    assert headroom() == (None, None)


def test_help_sorts_commands_and_cuts_no_sentence_that_fits(changefeed: Command) -> None:
    shown = changefeed("--help").out
    places = [shown.index(f"\n  {command} ") for command in ("check", "plan", "run", "tail", "status", "seek", "prune")]
    assert places == sorted(places)


def test_run_without_java_names_the_package_and_moves_nothing(changefeed: Command) -> None:
    changefeed.write(spark="{master: 'local[2]'}")
    first = changefeed.begin()
    changefeed.env["JAVA_HOME"] = str(changefeed.folder / "no-java-here")
    changefeed("run", changefeed.name).is_refused("SettingsError", "Java 17 or 21", "no-java-here", "openjdk-17")
    assert changefeed.checkpoint() == first
