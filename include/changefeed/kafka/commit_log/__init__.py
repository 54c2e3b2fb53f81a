"""The commit log. This package declares every kind of record in it, whatever code writes them.

An import of the package registers all kinds. So no process mistakes a known kind for a kind of a newer version.
"""

from changefeed.kafka.commit_log import periods, read_tables, records, snapshots

__all__ = ["periods", "read_tables", "records", "snapshots"]
