"""Reads a binlog without decoding rows: cuts it into slices, and finds coordinates, GTIDs or a time."""
