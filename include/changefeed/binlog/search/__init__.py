"""Reading a binlog without decoding rows: to cut it, and to find coordinates, GTIDs or a time in it."""
