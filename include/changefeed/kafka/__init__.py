"""Topics, transactional publishing, and the commit log."""
