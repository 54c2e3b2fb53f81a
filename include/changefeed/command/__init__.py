"""The `changefeed` command."""
