"""Which columns a pipeline's rules cover, and which they may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from changefeed.errors import SettingsError
from changefeed.model.column_rules import ColumnRules, Constant, Excluded, FirstCharacters, HmacSha256, Sha256
from changefeed.model.table_schema import Column, TableSchema
from changefeed.settings.column_settings import SecretSettings
from changefeed.settings.file import read_pipeline

PEOPLE = TableSchema("shop", "people", (Column("id", "int"), Column("Email", "text"), Column("phone", "text")), (0,))


def rules(folder: Path, columns: str) -> ColumnRules:
    path = folder / "crm.yaml"
    path.write_text(f"name: shop\nsource: {{connection: s}}\nkafka: {{connection: k}}\ncolumns: {columns}\n")
    return read_pipeline(path).column_rules({"salt": "generic://:p%40pper@"}.__getitem__)


def test_a_pipeline_without_rules_shows_all(tmp_path: Path) -> None:
    assert rules(tmp_path, "{}").of(PEOPLE) == {}


@pytest.mark.parametrize(
    "pattern", ["shop.people.email", "*.*.EMAIL", "shop.p*.e*", "SHOP.people.Email", r"/shop\.\D+\.e.*l/"]
)
def test_patterns_match_in_whatever_case(tmp_path: Path, pattern: str) -> None:
    assert rules(tmp_path, f"{{exclude: ['{pattern}']}}").of(PEOPLE) == {1: Excluded()}


@pytest.mark.parametrize(
    "pattern", ["shop.people.e", "shop.peopl.email", "crm.*.email", "*.*.mail", "/.*mai/", r"/people\.email/"]
)
def test_patterns_match_full_names(tmp_path: Path, pattern: str) -> None:
    assert rules(tmp_path, f"{{exclude: ['{pattern}']}}").of(PEOPLE) == {}


def test_each_mask_is_what_the_yaml_says_and_the_first_of_two_counts(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        "{mask: {'*.*.email': {sha256: {connection: salt}}, '*.*.*e*': {characters: 3}, '*.people.id2': {text: x}}}",
    )
    assert found.of(TableSchema("shop", "people", PEOPLE.columns, ())) == {1: Sha256("p@pper"), 2: FirstCharacters(3)}
    assert rules(tmp_path, "{mask: {'*.*.email': {text: null}}}").of(PEOPLE) == {1: Constant(None)}


def test_what_is_left_out_is_not_masked_too(tmp_path: Path) -> None:
    assert rules(tmp_path, "{mask: {'*.*.email': {text: x}}, exclude: ['*.*.email']}").of(PEOPLE) == {1: Excluded()}


def test_a_column_of_the_key_is_refused_with_file_setting_and_column(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        rules(tmp_path, "{mask: {'shop.*.id': {text: x}}}").of(PEOPLE)
    for words in ("crm.yaml", "columns.mask", "'shop.*.id'", "shop.people.id", "primary key"):
        assert words in str(caught.value)


def test_secrets_of_masks_come_from_connections_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "{mask: {'*.*.email': {hmac_sha256: {environment: KEY}}, '*.*.phone': {text_from: {connection: salt}}}}"
    monkeypatch.setenv("KEY", "k")
    assert rules(tmp_path, text).of(PEOPLE) == {1: HmacSha256("k"), 2: Constant("p@pper")}
    for empty in ("", None):
        monkeypatch.setenv("KEY", "") if empty == "" else monkeypatch.delenv("KEY")
        with pytest.raises(SettingsError, match="environment variable 'KEY', which the settings name as a secret"):
            rules(tmp_path, text)


@pytest.mark.parametrize("uri", ["generic://host", "generic://user@host", "generic://:", "", "://["])
def test_a_connection_without_a_password_is_no_secret(uri: str) -> None:
    with pytest.raises(SettingsError, match="connection 'salt' has no password"):
        SecretSettings(connection="salt").read(lambda _: uri)


@pytest.mark.parametrize("key", ["sha256", "hmac_sha256", "text_from"])
def test_a_secret_in_the_yaml_is_refused_with_the_way_to_write_it(tmp_path: Path, key: str) -> None:
    for secret in ("pl4nted", "12345", "[pl4nted]"):
        with pytest.raises(SettingsError) as caught:
            rules(tmp_path, f"\n  mask:\n    '*.*.email': {{{key}: {secret}}}")
        message = str(caught.value)
        for words in ("crm.yaml, line 6", f"{key}'", "{connection: ITS_ID}", "{environment: ITS_NAME}"):
            assert words in message
        assert secret not in message
