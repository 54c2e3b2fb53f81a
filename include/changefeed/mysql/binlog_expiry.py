"""How long a server keeps a binlog file after it was closed."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.mysql.session import Session

_RDS_HOURS = "SELECT value FROM mysql.rds_configuration WHERE name = 'binlog retention hours'"
_RDS_TABLE = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'mysql' AND table_name = 'rds_configuration'"
_RDS_FOLDER = "/rdsdbbin/"
"""Where Amazon's servers are installed, Aurora among them."""


@dataclass(frozen=True)
class BinlogExpiry:
    """``seconds`` is None where the server purges nothing by itself, and where it is not known (``is_known``).

    ``by_hours`` says that Amazon RDS or Aurora purges, by its `binlog retention hours`.
    """

    seconds: float | None
    is_known: bool = True
    by_hours: bool = False


def binlog_expiry(session: Session) -> BinlogExpiry:
    """What the server's settings say. Amazon RDS and Aurora purge files by a setting of their own, whatever the
    server's variables say: without it as soon as nothing of Amazon's needs them.

    https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/mysql-stored-proc-configuring.html
    """
    if session.rows(_RDS_TABLE):
        hours = [row[0] for row in session.rows(_RDS_HOURS)]
        if hours and hours[0] is not None:
            return BinlogExpiry(3600 * float(hours[0]), by_hours=True)
        return BinlogExpiry(None, is_known=False, by_hours=True)
    if (session.variable("basedir") or "").startswith(_RDS_FOLDER):  # without the right to read its setting
        return BinlogExpiry(None, is_known=False, by_hours=True)
    if session.variable("binlog_expire_logs_auto_purge") == "OFF":
        return BinlogExpiry(None)
    seconds = float(session.variable("binlog_expire_logs_seconds") or 0)
    return BinlogExpiry(seconds or 86_400 * float(session.variable("expire_logs_days") or 0) or None)
