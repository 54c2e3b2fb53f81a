"""Boundaries of chunks in the commit log: keys of rows, which its readers may not be meant to see.

A boundary is the primary key of a row, also where the pipeline leaves out or masks that column and chooses another key
for its messages. So they are encrypted where the pipeline has a key for it: `commit_log.key`, or else the secret of a
mask that hashes. Where it has neither, tables whose primary key it hides are in no snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from changefeed.errors import SettingsError
from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from changefeed.kafka.log_keys import TextCipher
from changefeed.model.column_rules import HmacSha256, Sha256
from changefeed.model.key_range import Boundary, KeyRange
from changefeed.model.table_schema import TableSchema
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline_settings import SHORTEST_KEY


def cipher_of(connections: PipelineConnections) -> TextCipher | None:
    """What encrypts the boundaries of the pipeline's snapshots; None where it has no secret for it.

    A mask's secret that could be guessed encrypts nothing: what it encrypted would tell a right guess.
    """
    secrets = list(connections.kafka.log_keys.secrets)
    for rule in connections.column_rules.rules:
        if isinstance(rule.treatment, HmacSha256):
            secrets.append(rule.treatment.key)
        elif isinstance(rule.treatment, Sha256):
            secrets.append(rule.treatment.salt)
    long = tuple(dict.fromkeys(secret for secret in secrets if len(secret) >= SHORTEST_KEY))
    return TextCipher(long) if long else None


def check_bounds(connections: PipelineConnections, schemas: Iterable[TableSchema]) -> None:
    """Raises SettingsError where the pipeline hides a column of a primary key, and nothing encrypts the boundaries."""
    pipeline = connections.pipeline
    hidden = [
        f"{schema.database}.{schema.table}.{name}"
        for schema in schemas
        for name in (schema.columns[number].name for number in schema.primary_key)
        if pipeline.hides(schema.database, schema.table, name)
    ]
    if hidden and cipher_of(connections) is None:
        more = f" (and {len(hidden) - 1} more)" if len(hidden) > 1 else ""
        raise SettingsError(
            f"a snapshot keeps in the commit log how far it has come, as values of the primary key, and pipeline "
            f"{pipeline.name!r} hides {hidden[0]}{more} in its messages: whoever reads that topic would read "
            "them. Nothing was published. Set `commit_log: {key: ...}`, by which they are encrypted (and run "
            f"`changefeed sign {pipeline.name}` once, if it has published already), or mask the column by hmac_sha256 "
            f"under a key of {SHORTEST_KEY} characters or more; or leave the table out of the snapshot with --tables."
        )


def without_bounds(snapshot: SnapshotRecord, cipher: TextCipher | None, identity: str) -> SnapshotRecord:
    """``snapshot`` as its log keeps it: with its boundaries encrypted, where there is a ``cipher``."""
    if cipher is None:
        return snapshot
    at, within = [table.at for table in snapshot.tables], [chunk.within for chunk in snapshot.round]
    values = [at, [[each.after, each.upto] for each in within]]
    bare = _with(snapshot, [None] * len(at), [KeyRange()] * len(within))
    return replace(bare, bounds=cipher.encrypt(json.dumps(values), identity))


def with_bounds(snapshot: SnapshotRecord, cipher: TextCipher | None, identity: str) -> SnapshotRecord:
    """What `without_bounds` was given. Raises SettingsError where no secret of the pipeline decrypts them."""
    if not snapshot.bounds:
        return snapshot
    text = cipher and cipher.decrypt(snapshot.bounds, identity)
    if not text:
        raise SettingsError(
            f"how far snapshot {identity!r} has come is encrypted in the commit log, and no secret of the pipeline "
            "decrypts it: `commit_log.key`, or the mask that it was encrypted by, changed since. Nothing more was "
            "published. Put the old secret back, also under `commit_log.previous_keys`; or start a new snapshot."
        )
    at, ranges = json.loads(text)
    within = [KeyRange(_boundary(after), _boundary(upto)) for after, upto in ranges]
    return replace(_with(snapshot, list(map(_boundary, at)), within), bounds="")


def _with(snapshot: SnapshotRecord, at: list[Boundary | None], within: list[KeyRange]) -> SnapshotRecord:
    return replace(
        snapshot,
        tables=tuple(replace(table, at=each) for table, each in zip(snapshot.tables, at, strict=True)),
        round=tuple(replace(chunk, within=each) for chunk, each in zip(snapshot.round, within, strict=True)),
    )


def _boundary(values: list[str] | None) -> Boundary | None:
    return None if values is None else tuple(map(str, values))
