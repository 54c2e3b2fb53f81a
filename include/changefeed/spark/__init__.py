"""The ingest flow: slices -> blocks -> topics."""
