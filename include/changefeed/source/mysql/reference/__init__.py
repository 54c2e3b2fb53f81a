"""The reference reader: rows decoded by mysql-replication, one Python object a cell. Slow, and easy to follow."""

from changefeed.source.mysql.reference.reader import ReferenceReader

__all__ = ["ReferenceReader"]
