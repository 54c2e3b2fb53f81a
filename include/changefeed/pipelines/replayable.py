"""Pipelines whose topics do not say all that the source did: no follower can be made of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from changefeed.errors import SettingsError
from changefeed.formats.envelope import check_readable

if TYPE_CHECKING:
    from changefeed.pipelines.pipeline import Pipeline


def check_replayable(pipeline: Pipeline) -> None:
    """Raises SettingsError with every reason, a line each, why the pipeline's topics cannot make a follower."""
    reasons = list(_reasons(pipeline))
    if reasons:
        lines = "".join(f"\n- {reason}" for reason in reasons)
        raise SettingsError(f"pipeline {pipeline.name!r} cannot have a follower:{lines}")


def is_replayable(pipeline: Pipeline) -> bool:
    """Whether the pipeline's topics can make a follower."""
    return not any(_reasons(pipeline))


def _reasons(pipeline: Pipeline) -> Iterator[str]:
    try:
        check_readable(pipeline.format.name, pipeline.message_format(0))
    except SettingsError as error:
        yield str(error)
    if pipeline.columns.exclude:
        yield "`columns.exclude` leaves columns out, which the follower's tables would miss"
    if pipeline.columns.mask:
        yield "`columns.mask` hides values, which the follower's rows would have in place of the source's"
    if pipeline.transforms:
        yield "`transforms` change rows, so that they are not the source's any more"
    if pipeline.outbox:
        yield "`outbox` makes messages of rows, which say nothing of the rows themselves"
    if pipeline.rows:
        yield "`rows` leaves out rows, and what becomes of them later"
    if left_out := set(pipeline.skip) & {"c", "u", "d"}:
        yield f"`skip` leaves out {', '.join(sorted(left_out))}"
    if pipeline.topics.table_field is not None:
        yield "`topics.table_field` adds a column to rows that the tables do not have"
    if any(route.table_field is not None for route in pipeline.topics.routes):
        yield "`table_field` of a route in `topics.routes` adds a column to rows that the tables do not have"
    if any(route.format is not None for route in pipeline.topics.routes):
        yield "a route in `topics.routes` has a `format` of its own: a follower reads all topics in the pipeline's"
    if pipeline.publish_ddl == "off":
        yield "`publish_ddl: off` leaves out definitions: the follower's tables would stay as they are"
    if pipeline.statements == "skip":
        yield "`statements: skip` leaves out changes in statement format"
    if pipeline.kafka.on_bad_record == "dead_letter":
        yield "`kafka.on_bad_record: dead_letter` takes rows out of their topics that Kafka does not take"
    if pipeline.topics.configs.get("cleanup.policy", "delete") != "delete":
        yield "`topics.configs` has a `cleanup.policy` that compacts topics: earlier changes of a row are removed"
    skipped = str(pipeline.format.options.get("skipped.operations", ""))
    if {"c", "u", "d"} & set(skipped.replace("none", "").replace(" ", "").split(",")):
        yield f"its format's `skipped.operations: {skipped}` leaves them out"
