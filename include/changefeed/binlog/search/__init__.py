"""Reading a binlog without decoding rows: where it can be cut, and where a place in it is."""
