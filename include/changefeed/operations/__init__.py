"""What is done to a pipeline beside its runs: check, status, seek, backfill, recover, prune."""
