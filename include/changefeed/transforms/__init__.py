"""Users' Python functions on row changes: their arguments, their calls, and the messages of their results."""
