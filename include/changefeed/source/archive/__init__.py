"""Archived binlog files: `mysqlbinlog --raw` output in a folder or behind a URL."""
