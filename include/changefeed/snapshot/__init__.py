"""snapshot: publishes the existing rows of tables as op r, in chunks, while the pipeline publishes windows."""
