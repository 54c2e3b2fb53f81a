"""Reads from a MySQL or MariaDB server: preflight, head, list of binlog files, dump stream, schemas."""
