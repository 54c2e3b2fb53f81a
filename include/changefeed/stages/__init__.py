"""The stages of a run that need no Spark: plan before it, commit after it."""
