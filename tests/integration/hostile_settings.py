"""Unusual global settings that administrators may choose, with which a changefeed must still work."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pymysql

from devstack.sql_server import SqlServer

HOSTILE: Mapping[str, Sequence[str]] = {
    # of both servers
    "sql_mode": (
        "''",
        "'ANSI'",
        "'NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'",
        "'TRADITIONAL'",
        "'PIPES_AS_CONCAT,IGNORE_SPACE,NO_ZERO_DATE'",
        "'HIGH_NOT_PRECEDENCE,NO_AUTO_VALUE_ON_ZERO,REAL_AS_FLOAT'",
    ),
    "time_zone": ("'+05:30'", "'-11:00'", "'+13:00'"),
    "binlog_row_image": ("FULL",),
    "binlog_row_metadata": ("FULL", "MINIMAL"),
    "binlog_checksum": ("NONE",),
    "character_set_server": ("latin1", "utf8mb3", "utf8mb4", "ucs2"),
    "character_set_connection": ("latin1", "utf8mb4"),
    "character_set_results": ("latin1",),
    "autocommit": ("0",),
    "completion_type": ("'CHAIN'",),
    "explicit_defaults_for_timestamp": ("ON", "OFF"),
    "sql_select_limit": ("1", "17"),
    "max_join_size": ("1",),
    "max_execution_time": ("1",),
    "net_write_timeout": ("1",),
    "wait_timeout": ("2",),
    "system_versioning_asof": ("'2001-01-01'",),
    "div_precision_increment": ("0", "30"),
    "lc_time_names": ("'de_DE'", "'ja_JP'"),
    "group_concat_max_len": ("4",),
    "max_sort_length": ("64",),
    "sql_safe_updates": ("1",),
    "sql_auto_is_null": ("1",),
    "foreign_key_checks": ("0",),
    "unique_checks": ("0",),
    "default_storage_engine": ("MyISAM",),
    "auto_increment_increment": ("7",),
    "auto_increment_offset": ("3",),
    "default_week_format": ("3",),
    "max_length_for_sort_data": ("4",),
    "max_error_count": ("0",),
    "net_buffer_length": ("1024",),
    "max_allowed_packet": ("67108864",),
    "updatable_views_with_limit": ("NO",),
    "big_tables": ("1",),
    "end_markers_in_json": ("1",),
    "optimizer_prune_level": ("0",),
    "query_prealloc_size": ("8192",),
    "read_buffer_size": ("8200",),
    "innodb_lock_wait_timeout": ("2",),
    "lock_wait_timeout": ("5",),
    "low_priority_updates": ("1",),
    # MySQL's
    "transaction_isolation": ("'READ-UNCOMMITTED'", "'SERIALIZABLE'", "'READ-COMMITTED'"),
    "binlog_transaction_compression": ("ON",),
    "binlog_rows_query_log_events": ("ON",),
    "binlog_row_value_options": ("PARTIAL_JSON",),
    "binlog_order_commits": ("OFF",),
    "default_collation_for_utf8mb4": ("utf8mb4_general_ci",),
    "show_create_table_verbosity": ("1",),
    "sql_quote_show_create": ("0",),
    "information_schema_stats_expiry": ("0",),
    "print_identified_with_as_hex": ("1",),
    "show_create_table_skip_secondary_engine": ("1",),
    "windowing_use_high_precision": ("0",),
    "cte_max_recursion_depth": ("1",),
    "range_optimizer_max_mem_size": ("1",),
    "max_points_in_geometry": ("3",),
    "session_track_gtids": ("ALL_GTIDS",),
    "select_into_buffer_size": ("8192",),
    "innodb_strict_mode": ("0",),
    "show_gipk_in_create_table_and_information_schema": ("0",),
    "sql_generate_invisible_primary_key": ("1",),
    # MariaDB's
    "tx_isolation": ("'READ-UNCOMMITTED'", "'SERIALIZABLE'", "'READ-COMMITTED'"),
    "log_bin_compress": ("ON",),
    "binlog_annotate_row_events": ("OFF",),
    "old_mode": ("''", "'UTF8_IS_UTF8MB3,NO_PROGRESS_INFO'", "'ZERO_DATE_TIME_CAST'"),
    "check_constraint_checks": ("0",),
    "use_stat_tables": ("NEVER",),
    "gtid_domain_id": ("7",),
    "binlog_alter_two_phase": ("1",),
    "sql_if_exists": ("1",),
    "aria_checksum": ("1",),
    "note_verbosity": ("''",),
    "in_predicate_conversion_threshold": ("2",),
    "column_compression_threshold": ("4",),
    "character_set_collations": ("'utf8mb4=utf8mb4_bin'",),
}
"""Values of global variables with which a changefeed must still work."""

HARMLESS = {
    "autocommit": "1",
    "sql_if_exists": "0",
    "completion_type": "0",
    "sql_safe_updates": "0",
    "sql_select_limit": "18446744073709551615",
    "max_join_size": "18446744073709551615",
    "max_execution_time": "0",
    "max_statement_time": "0",
    "wait_timeout": "28800",
    "system_versioning_asof": "DEFAULT",
}
"""Settings of the workload's own session, so that its statements work."""


@contextlib.contextmanager
def set_globals(server: SqlServer, chosen: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Set global variables during the block; yields those that the server has and accepts."""
    before: dict[str, Any] = {}
    taken: dict[str, str] = {}
    with server.connect() as connection, connection.cursor() as cursor:
        for name, value in chosen.items():
            try:
                cursor.execute(f"SELECT @@GLOBAL.{name}")
                (was,) = cursor.fetchone()
                cursor.execute(f"SET GLOBAL {name} = {value}")
            except pymysql.MySQLError:
                continue
            before[name], taken[name] = was, value
    try:
        yield taken
    finally:
        with server.connect() as connection, connection.cursor() as cursor:
            for name, was in before.items():
                cursor.execute(f"SET GLOBAL {name} = {'DEFAULT' if was == 'DEFAULT' else connection.escape(was)}")


def choose_hostile_settings(rng: random.Random, count: int) -> dict[str, str]:
    """Random values of ``count`` variables; a server may not have all of them."""
    names = rng.sample(sorted(HOSTILE), min(count, len(HOSTILE)))
    return {name: rng.choice(HOSTILE[name]) for name in names}
