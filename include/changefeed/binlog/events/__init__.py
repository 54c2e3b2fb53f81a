"""What stands in a binlog: its frame, its types of events, GTIDs, charsets."""
