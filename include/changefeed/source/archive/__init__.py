"""Reads archived binlog files: the output of `mysqlbinlog --raw` in a folder or at a URL."""
