"""The reference reader, which is slow and simple: mysql-replication decodes rows to a Python object for each cell."""

from changefeed.source.mysql.reference.reader import ReferenceReader

__all__ = ["ReferenceReader"]
