"""An example of a transform: card numbers leave the house with their last four digits only, test cards not at all.

In a pipeline's YAML:

    transforms:
      - {tables: "shop.payments", function: mask_cards, arguments: {column: card, test_prefix: "4242"}}

Try it on changes of a binlog file, without Spark and without Kafka:

    changefeed decode binlog.000001 --tables shop.payments > events.jsonl
    changefeed test-transform mask_cards --file events.jsonl --arguments '{"column": "card"}'
"""

from __future__ import annotations

from changefeed.transforms.change import Change


def transform(change: Change, column: str, test_prefix: str = "") -> Change | None:
    """``change`` with the card number in ``column`` masked; None, so that it is dropped, for a test card."""
    if test_prefix and str(change.row.get(column) or "").startswith(test_prefix):
        return None
    for row in change.rows:
        if row.get(column) is not None:
            row[column] = "*" * 12 + row[column][-4:]
    return change
