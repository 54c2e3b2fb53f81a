"""Operations on a pipeline, apart from its runs: check, status, seek, backfill, recover, prune, rename, sign."""
