"""A run, but for Spark's part of it: plan freezes a window before it, commit moves the checkpoint after it."""
