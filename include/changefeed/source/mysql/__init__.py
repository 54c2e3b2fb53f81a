"""The connection to a MySQL or MariaDB server: preflight, head, binlog list, dump stream, schema."""
