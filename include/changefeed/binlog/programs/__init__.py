"""Row programs: what a format says of a table, bound to its columns, as words that the kernel runs."""
