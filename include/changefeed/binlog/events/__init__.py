"""Reads the structure of a binlog: frame, types of events, GTIDs, charsets."""
