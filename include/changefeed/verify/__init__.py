"""verify: compares the rows of a source or of one of its followers with the rows in the topics."""
