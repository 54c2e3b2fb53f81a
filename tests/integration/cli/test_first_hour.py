"""What somebody meets who uses the command for the first time, beside an Airflow, another one, or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow_database import migrated
from integration.command import NOTHING_NEW, WRONG_PASSWORD, Command

from devstack.port import free_port

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]


@pytest.fixture
def in_variables(changefeed: Command, tmp_path: Path) -> Command:
    """A pipeline as the README shows it, its checkpoint in an Airflow Variable; and no Airflow anywhere."""
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
    """What a command with --json prints there, which is JSON whatever happens; and no traceback anywhere."""
    outcome = command(*arguments, "--json")
    assert "Traceback" not in outcome.out + outcome.err
    return json.loads(outcome.out)


def test_without_an_airflow_a_checkpoint_in_a_variable_is_refused_and_no_airflow_is_made(in_variables: Command) -> None:
    command, name = in_variables, in_variables.name
    for spelled in (["plan", name], ["run", name], ["lag", name], ["recover", name]):
        refused = command(*spelled)
        refused.is_refused("SettingsError", "checkpoint.store: variable", "AIRFLOW_HOME", "store: table")
    assert on_stdout(command, "plan", name)["error"].startswith("SettingsError: ")
    (told,) = on_stdout(command, "status")
    assert (told["state"], told["error"].partition(":")[0]) == ("error", "SettingsError")
    assert list(Path(command.env["HOME"]).iterdir()) == []


def test_an_airflow_without_a_database_is_told_and_is_no_lost_checkpoint(in_variables: Command) -> None:
    command, name = in_variables, in_variables.name
    command.env["AIRFLOW_HOME"] = str(command.folder / "airflow")
    (command.folder / "airflow").mkdir()
    command("plan", name).is_refused("SettingsError", repr(command.env["AIRFLOW_HOME"]), "no airflow.cfg")
    (command.folder / "airflow" / "airflow.cfg").touch()
    refused = command("plan", name)
    refused.is_refused("StateStoreUnavailableError", "no such table: variable", "airflow.db", "AIRFLOW_HOME")
    assert "recover" not in refused.err
    assert on_stdout(command, "plan", name)["error"].startswith("StateStoreUnavailableError: ")


def test_beside_its_airflow_the_command_has_its_checkpoints_and_tells_the_wrong_key_from_a_lost_one(
    in_variables: Command,
) -> None:
    command, name = in_variables, in_variables.name
    ours = migrated(command.folder / "airflow")
    command.env |= {variable: value for variable, value in ours.items() if variable.startswith("AIRFLOW")}
    command.env["AIRFLOW__CORE__FERNET_KEY"] = "cFRKM0hQZ2JkTTRfcDJkYlZHeGx1RnRaRXVMYUx0c0Y="
    assert command("run", name).exit_code == NOTHING_NEW
    (told,) = on_stdout(command, "status")
    assert (told["state"], told["window"]) == ("current", 0)
    command.env["AIRFLOW__CORE__FERNET_KEY"] = "YkpZQ0hYbUV4V1FJNDlEeFRkcW9tbWJ2bFR6NGlLUEo="
    command("plan", name).is_refused("CheckpointError", "cannot be decrypted", "AIRFLOW__CORE__FERNET_KEY")


def test_with_json_an_error_is_json_on_stdout_and_the_same_words_on_stderr(changefeed: Command) -> None:
    for arguments in (["plan", "nobody"], ["windows", "nobody"], ["seek", changefeed.name, "latest"]):
        outcome = changefeed(*arguments, "--json")
        outcome.is_refused("SettingsError")
        assert json.loads(outcome.out) == {"error": outcome.err.strip()}


def test_how_long_the_server_keeps_the_binlog_is_a_figure_unlimited_or_not_known(spare: Command) -> None:
    spare.begin()

    def headroom() -> tuple[float | None, bool | None]:
        told = json.loads(spare("lag", spare.name, "--json").out)
        return told["retention_headroom_seconds"], told["retention_unlimited"]

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


def test_help_lists_first_what_is_needed_first_and_cuts_no_sentence_that_fits(changefeed: Command) -> None:
    shown = changefeed("--help").out
    places = [shown.index(f"\n  {command} ") for command in ("check", "plan", "run", "tail", "status", "seek", "prune")]
    assert places == sorted(places)


def test_without_java_a_run_says_what_to_install_and_moves_nothing(changefeed: Command) -> None:
    changefeed.write(spark="{master: 'local[2]'}")
    first = changefeed.begin()
    changefeed.env["JAVA_HOME"] = str(changefeed.folder / "no-java-here")
    changefeed("run", changefeed.name).is_refused("SettingsError", "Java 17 or 21", "no-java-here", "openjdk-17")
    assert changefeed.checkpoint() == first
