"""System tables: all tables of some databases, and some tables of the database `mysql`, where users can create others.

The names are those of a fresh server: MySQL 5.7.22, 8.0.15 and 9.7.4, MariaDB 10.11.5, 11.4.5 and 11.8.9
(`tests/integration/source/test_own_tables.py` compares them), and those of MySQL 5.6 and MariaDB 10.3. A table whose
name is a system table's only in other releases can be a user's table.
"""

from __future__ import annotations

import re

OWN_DATABASES = ("sys", "information_schema", "performance_schema")
"""The databases with only system tables."""
SYSTEM_DATABASES = ("mysql", *OWN_DATABASES)
"""The databases that each server has from its installation on, and that users do not create or drop."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OF_BOTH = _names(
    """
    columns_priv db func general_log help_category help_keyword help_relation help_topic innodb_index_stats
    innodb_table_stats plugin procs_priv proxies_priv servers slow_log tables_priv time_zone
    time_zone_leap_second time_zone_name time_zone_transition time_zone_transition_type user
    """
)
_OF_MYSQL = _names(
    """
    engine_cost gtid_executed ndb_binlog_index server_cost slave_master_info slave_relay_log_info
    slave_worker_info
    """
)
_OF_MYSQL_BEFORE_8 = _names(
    """
    event host proc
    """
)
_OF_MYSQL_FROM_8 = _names(
    """
    component default_roles global_grants password_history replication_asynchronous_connection_failover
    replication_asynchronous_connection_failover_managed replication_group_configuration_version
    replication_group_member_actions role_edges
    """
)
_OF_MARIADB = _names(
    """
    column_stats event global_priv gtid_slave_pos host index_stats proc roles_mapping table_stats
    transaction_registry
    """
)
_MADE_LATER = re.compile(
    r"(?:rds|aurora|__az|ndb|wsrep)_.*+|(?:innodb_(?:index|table)_stats|gtid_slave_pos)_.*+|ro_replica_status"
    r"|audit_log_(?:filter|user)|firewall_(?:users|whitelist|groups|group_allowlist|membership)"
)
"""System tables that are created later: of plugins, Galera and NDB, and of the services of Amazon and Microsoft."""


def own_tables(*, is_mariadb: bool, major: int) -> frozenset[str]:
    """The names of system tables in the database `mysql`, for a release of that ``major`` version."""
    if is_mariadb:
        return _OF_BOTH | _OF_MARIADB
    return _OF_BOTH | _OF_MYSQL | (_OF_MYSQL_FROM_8 if major >= 8 else _OF_MYSQL_BEFORE_8)


_OF_ANY = _OF_BOTH | _OF_MYSQL | _OF_MYSQL_BEFORE_8 | _OF_MYSQL_FROM_8 | _OF_MARIADB


def is_own_table(database: str, table: str, *, is_mariadb: bool | None = None, major: int = 0) -> bool:
    """Whether the table is a system table; if ``is_mariadb`` is None, whether it is one on any server."""
    if database.lower() != "mysql":
        return database.lower() in OWN_DATABASES
    name = table.lower()
    names = _OF_ANY if is_mariadb is None else own_tables(is_mariadb=is_mariadb, major=major)
    return name in names or _MADE_LATER.fullmatch(name) is not None


NOT_OWN = ("table_schema NOT IN ('{}') AND NOT (table_schema = 'mysql' AND table_name IN ('{}'))").format(
    "', '".join(OWN_DATABASES), "', '".join(sorted(_OF_BOTH))
)
"""An SQL condition on `table_schema` and `table_name` that excludes the tables that are system tables on every server,
so that a server does not open them. `is_own_table` excludes the other system tables."""
