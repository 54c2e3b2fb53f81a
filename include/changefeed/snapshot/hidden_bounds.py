"""Encrypts the boundaries of chunks in the commit log, because they are keys of rows.

A boundary is the primary key of a row, even if the pipeline leaves out or masks that column and chooses another key for
its messages. So boundaries are encrypted with `commit_log.key` or, without it, with the secret of a hashing mask. If
there is no secret, a snapshot refuses tables whose primary key the pipeline hides.
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
from changefeed.settings.pipeline_settings import MIN_KEY_LENGTH


def cipher_of(connections: PipelineConnections) -> TextCipher | None:
    """The cipher for the boundaries of the pipeline's snapshots; None if the pipeline has no secret.

    Short secrets of masks are not used: with the encrypted text, an attacker could test guesses of a short secret.
    """
    secrets = list(connections.kafka.log_keys.secrets)
    for rule in connections.column_rules.rules:
        if isinstance(rule.treatment, HmacSha256):
            secrets.append(rule.treatment.key)
        elif isinstance(rule.treatment, Sha256):
            secrets.append(rule.treatment.salt)
    long = tuple(dict.fromkeys(secret for secret in secrets if len(secret) >= MIN_KEY_LENGTH))
    return TextCipher(long) if long else None


def check_bounds(connections: PipelineConnections, schemas: Iterable[TableSchema]) -> None:
    """Raises SettingsError if the pipeline hides a column of a primary key and has no cipher for boundaries."""
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
            f"a snapshot stores its progress in the commit log as values of the primary key, and pipeline "
            f"{pipeline.name!r} hides {hidden[0]}{more} in its messages: readers of that topic would see them. "
            "Nothing was published. Set `commit_log: {key: ...}`, which encrypts them (and run `changefeed sign "
            f"{pipeline.name}` once, if the pipeline has published already), or mask the column by hmac_sha256 with a "
            f"key of {MIN_KEY_LENGTH} characters or more; or leave the table out of the snapshot with --tables."
        )


def without_bounds(snapshot: SnapshotRecord, cipher: TextCipher | None, identity: str) -> SnapshotRecord:
    """``snapshot`` in the form that its log stores: with encrypted boundaries if there is a ``cipher``."""
    if cipher is None:
        return snapshot
    at, within = [table.at for table in snapshot.tables], [chunk.within for chunk in snapshot.round]
    values = [at, [[each.after, each.upto] for each in within]]
    bare = _with(snapshot, [None] * len(at), [KeyRange()] * len(within))
    return replace(bare, bounds=cipher.encrypt(json.dumps(values), identity))


def with_bounds(snapshot: SnapshotRecord, cipher: TextCipher | None, identity: str) -> SnapshotRecord:
    """``snapshot`` with decrypted boundaries; the reverse of `without_bounds`.

    Raises SettingsError if no secret of the pipeline decrypts the boundaries.
    """
    if not snapshot.bounds:
        return snapshot
    text = cipher and cipher.decrypt(snapshot.bounds, identity)
    if not text:
        raise SettingsError(
            f"the progress of snapshot {identity!r} is encrypted in the commit log, and no secret of the pipeline "
            "decrypts it: `commit_log.key`, or the mask whose secret encrypted it, changed since. Nothing more was "
            "published. Put the old secret back, or add it to `commit_log.previous_keys`; or start a new snapshot."
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
