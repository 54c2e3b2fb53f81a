"""verify: whether topics, or a follower, have the rows that the source has."""
