"""The commit log: every kind of record that it stores is declared in this package, whoever writes it.

Importing the package makes all of them known, so that no process takes a record of this version for one of a newer.
"""

from changefeed.kafka.commit_log import read_tables, records, snapshots

__all__ = ["read_tables", "records", "snapshots"]
