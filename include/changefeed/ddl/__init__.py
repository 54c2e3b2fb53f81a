"""What a statement does to which tables."""
