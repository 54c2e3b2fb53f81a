"""Row programs: a format's templates, bound to a table's columns, as words that the kernel runs."""
