"""The test files of the two projects that are run, and the reference readers of a server's binlog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from foreign.reference import Reference

from devstack.home import Home
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer, fetch_mysql
from devstack.mysqltest import MARIADB_TESTS, MYSQL_TESTS, TestFiles, fetch_mariadb_binlog
from devstack.sql_server import SqlServer


@dataclass(frozen=True)
class Suite:
    """A project's test files, and the server that they are for."""

    server: type[SqlServer]
    files: TestFiles
    folders: Sequence[str]
    """Folders with statements that any server of the project runs; others test replication, plugins, settings."""

    def scripts(self, folder: Path, patterns: Sequence[str]) -> Iterator[Path]:
        """The files of ``folder`` that are run; ``patterns`` of paths choose some, or any others."""
        for pattern in patterns or [f"{name}/*.test" for name in self.folders]:
            yield from sorted(folder.glob(pattern))


_OF_BOTH = (
    *("suite/innodb/t", "suite/engines/funcs/t", "suite/engines/iuds/t", "suite/parts/t", "suite/gcol/t"),
    *("suite/jp/t", "suite/funcs_1/t", "suite/innodb_gis/t", "suite/innodb_fts/t", "suite/json/t"),
)
SUITES = {
    "mysql": Suite(
        MysqlServer,
        MYSQL_TESTS,
        ("t", *_OF_BOTH, "suite/gis/t", "suite/collations/t", "suite/innodb_zip/t", "suite/max_parts/t"),
    ),
    "mariadb": Suite(
        MariadbServer,
        MARIADB_TESTS,
        (
            *("main", *_OF_BOTH, "suite/vcol/t", "suite/versioning/t", "suite/period/t", "suite/sql_sequence"),
            *("suite/compat/oracle/t", "suite/compat/maxdb", "suite/maria", "suite/heap"),
            *("plugin/type_inet/type_inet", "plugin/type_uuid/type_uuid"),
        ),
    ),
}


def reference_of(server: SqlServer) -> Reference:
    """The server's own program that reads binlogs."""
    home = Home.default()
    if isinstance(server, MariadbServer):
        return Reference(fetch_mariadb_binlog(home))
    return Reference(fetch_mysql(home).program("mysqlbinlog") or ())
