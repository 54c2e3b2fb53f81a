"""Users' Python functions on row changes: what they get, how they are called, and how their results become messages."""
